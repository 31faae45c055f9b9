"""The command line `runner`: takes the words, runs one command, answers with an exit code.

Rules of this file: it loads the code of the one command that is asked for; a refusal is one line and never a traceback;
a traceback is a bug. The exit codes are listed in the help.
"""

from __future__ import annotations

import importlib
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.errors import InvalidInput, RunnerError, UsageError
from runner.process.cli.arguments import level, parse
from runner.process.cli.printing import leave_output, report, set_up_output

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

_HOMES = {
    "up": "everything",
    "worker": "programs",
    "supervisor": "programs",
    "doctor": "examining",
    "submit": "submitting",
    "tail": "following",
    "show": "looking",
    "list": "looking",
    "workers": "looking",
    "cancel": "looking",
    "explain": "explaining",
    "fold": "fold",
}
"""Command -> the module with its `run_<command>`."""

_PROGRAMS = frozenset({"up", "worker", "supervisor"})


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command that `words` (by default those of the process) name; returns the exit code."""
    words = sys.argv[1:] if words is None else words
    set_up_output()
    try:
        code = _run(parse(words))
        sys.stdout.flush()
    except RunnerError as why:
        report(why, as_json="--json" in words)
        return USAGE if isinstance(why, UsageError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        leave_output()
        return FAILED
    return code


def _run(arguments: Namespace) -> int:
    _set_up_logging(arguments)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last: RUNNER_AGENTS may name a module here, but nothing here hides an installed one
    home = importlib.import_module(f"runner.process.cli.{_HOMES[arguments.command]}")
    command: Callable[[Namespace], int] = getattr(home, f"run_{arguments.command}")
    return command(arguments)


def _set_up_logging(arguments: Namespace) -> None:
    from runner.telemetry import set_up_logging

    is_program = arguments.command in _PROGRAMS
    try:
        chosen = arguments.log_level or level(
            os.environ.get("RUNNER_LOG_LEVEL") or ("INFO" if is_program else "WARNING")
        )
    except ArgumentTypeError as why:
        raise InvalidInput(f"RUNNER_LOG_LEVEL: {why}") from None
    set_up_logging(chosen, as_json=True if arguments.json else None)
