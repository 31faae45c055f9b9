"""The grammar of the command line, and its help.

Rules of this file: what can be refused by looking at the words alone is refused here; `--json` and `--log-level` stand
before or after the command.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from runner.errors import InvalidInput

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction["_Parser"]

ABOUT = "Durable agent turns on Redis: kill anything, any time; the answer arrives once, whole, in order."

EPILOG = """\
exit codes:
  0    done; a run that was followed has completed; a program ended because it was told to
  1    failed: no server, no such run, or a run that was followed ended otherwise than completed
  2    usage: an argument or a RUNNER_ variable that can never work; nothing was stored
  130  interrupted

Errors are one line on standard error; with --json a JSON object {"error": {"type", "message", facts ..}}.

Which server: RUNNER_REDIS_URL; when it is not set, an embedded server in RUNNER_DATA_DIR (default .runner), which the
first command starts and later ones share. RUNNER_AGENTS names the agents as module:attribute. `runner doctor` checks
all of it.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that refuses as everything else here does: by a typed error, on one line."""

    def error(self, message: str) -> NoReturn:
        """Raises InvalidInput."""
        raise InvalidInput(f"{message}; see {self.prog} --help")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command and its options. Raises InvalidInput; SystemExit after `--help`."""
    shared = _shared()
    parser = _Parser(
        prog="runner",
        description=ABOUT,
        epilog=EPILOG,
        parents=[shared],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _programs(commands, shared)
    _submit(commands, shared)
    _about_runs(commands, shared)
    _fold(commands, shared)
    arguments = parser.parse_args(words)
    arguments.json = getattr(arguments, "json", False)
    arguments.log_level = getattr(arguments, "log_level", None)
    return arguments


def _shared() -> _Parser:
    """Options of every command. They have no default, so that the one before the command is not undone behind it."""
    shared = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--json", action="store_true", help="print JSON, one value a line")
    shared.add_argument(
        "--log-level",
        type=level,
        metavar="LEVEL",
        help="log events from this level on, to standard error (RUNNER_LOG_LEVEL)",
    )
    return shared


def _programs(commands: Commands, shared: _Parser) -> None:
    up = _command(commands, shared, "up", "a server, workers and a supervisor in one terminal; Ctrl-C ends them")
    up.add_argument("--processes", type=_from_one, default=2, metavar="P", help="worker processes (default 2)")
    up.add_argument("--concurrency", type=_from_one, metavar="N", help="turns per process (RUNNER_CONCURRENCY)")
    worker = _command(commands, shared, "worker", "run turns until told to stop; running turns are handed over")
    worker.add_argument("--processes", type=_from_one, default=1, metavar="P", help="processes (default 1)")
    worker.add_argument("--concurrency", type=_from_one, metavar="N", help="turns per process (RUNNER_CONCURRENCY)")
    worker.add_argument("--isolate", action="store_true", help="fork for each turn, one turn per process at a time")
    supervisor = _command(commands, shared, "supervisor", "bring back runs that stopped, until told to stop")
    for program in (worker, supervisor):
        program.add_argument("--stop-with-parent", type=int, metavar="PID", help=argparse.SUPPRESS)
    _command(commands, shared, "doctor", "check server, queue, workers and supervisor, and say what to do")


def _submit(commands: Commands, shared: _Parser) -> None:
    submit = _command(commands, shared, "submit", "submit a turn")
    submit.add_argument("agent", metavar="AGENT", help="the agent's name")
    request = submit.add_mutually_exclusive_group()
    request.add_argument("--message", metavar="TEXT", help="the user's text; - reads it from standard input")
    request.add_argument("--input-json", metavar="JSON", help="the input as JSON; - reads it from standard input")
    submit.add_argument(
        "--key", type=_filled, metavar="KEY", help="idempotency key: the same key and request give the same run"
    )
    submit.add_argument("--thread", type=_filled, metavar="ID", help="the thread the turn belongs to")
    submit.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="no_progress_ms, attempts or lost_workers: a whole number from 0, or none for off",
    )
    submit.add_argument("--tail", action="store_true", help="follow the run to its end")


def _about_runs(commands: Commands, shared: _Parser) -> None:
    tail = _command(commands, shared, "tail", "follow a run live, from any seq, to its end")
    tail.add_argument("run_id", metavar="RUN_ID")
    tail.add_argument("--after", type=int, default=0, metavar="SEQ", help="start behind this seq (default 0)")
    about = {
        "show": "a run and its message so far",
        "cancel": "end a run as cancelled",
        "explain": "every transition of a run, and what comes next",
    }
    for name, what in about.items():
        _command(commands, shared, name, what).add_argument("run_id", metavar="RUN_ID")
    live = _command(commands, shared, "list", "runs that have not ended, oldest first")
    live.add_argument("--limit", type=_from_one, default=200, metavar="N", help="at most so many (default 200)")
    _command(commands, shared, "workers", "worker processes that live")


def _fold(commands: Commands, shared: _Parser) -> None:
    fold = _command(commands, shared, "fold", "the message that a stream of chunks makes; needs no server")
    fold.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="JSON lines or server-sent events (default -)"
    )
    fold.add_argument("--sse", action="store_true", help="it is server-sent events (by default its first line decides)")
    shown = fold.add_mutually_exclusive_group()
    shown.add_argument("--provider-view", action="store_true", help="print what a model would be shown of the message")
    shown.add_argument("--cases", action="store_true", help="each line is a conformance case; print one answer a line")


def _command(commands: Commands, shared: _Parser, name: str, what: str) -> _Parser:
    return commands.add_parser(
        name, parents=[shared], help=what, description=f"{what[0].upper()}{what[1:]}.", allow_abbrev=False
    )


def level(text: str) -> str:
    """The name of a log level."""
    if text.upper() not in logging.getLevelNamesMapping():
        raise argparse.ArgumentTypeError(f"{text!r} is no log level: DEBUG, INFO, WARNING or ERROR")
    return text.upper()


def _from_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _filled(text: str) -> str:
    """Not empty: an empty name comes from a variable that was not set, and would silently be no name at all."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; leave the option out")
    return text
