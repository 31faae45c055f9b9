"""`submit`: records a turn, says its run id, and follows it when asked.

Rules of this file: what can be known to be wrong is refused before the server is touched; agents that cannot be loaded
here are the worker's to judge.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import Any, NoReturn

from runner.bootstrap import load_agents
from runner.client import Runner
from runner.engine.submit import Submitted
from runner.errors import InvalidInput
from runner.process.cli.connecting import with_runner
from runner.process.cli.following import follow, make_writer
from runner.process.cli.printing import remark, say, say_json
from runner.settings import checked_budgets, load_settings

_FROM_STDIN = "-"


def run_submit(arguments: Namespace) -> int:
    """Submits a turn."""
    settings = load_settings()
    budgets = parse_budgets(arguments.budget)
    message = _text(arguments.message)
    request = None if arguments.input_json is None else parse_input(_text(arguments.input_json) or "")
    _refuse_unknown(settings.agents, arguments.agent)
    writer = make_writer(as_json=arguments.json)
    run_ids: list[str] = []

    async def work(runner: Runner) -> int:
        submitted = await runner.submit(
            arguments.agent,
            message,
            input=request,
            thread=arguments.thread,
            idempotency_key=arguments.key,
            budgets=budgets,
        )
        run_ids.append(submitted.run_id)
        _tell(submitted, arguments)
        return await follow(runner, submitted.run_id, writer, advise=not arguments.json) if arguments.tail else 0

    try:
        return with_runner(work, settings)
    except KeyboardInterrupt:
        if run_ids and not arguments.json:
            remark(f"\nthe run goes on; follow it with: runner tail {run_ids[0]} --after {writer.seq}")
        raise


def parse_budgets(words: list[str]) -> dict[str, Any]:
    """Budgets from NAME=VALUE words. Raises InvalidInput."""
    budgets: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidInput(f"budget {word!r} has no value; give it as NAME=VALUE")
        if name in budgets:
            raise InvalidInput(f"budget {name!r} is given twice; give it once")
        budgets[name] = value
    checked_budgets(budgets)
    return budgets


def parse_input(text: str) -> Any:
    """A JSON value. Raises InvalidInput."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as why:
        raise InvalidInput(f"--input-json is no JSON: {why}") from None
    except RecursionError:
        raise InvalidInput("--input-json is nested too deeply; flatten it") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _text(word: str | None) -> str | None:
    return sys.stdin.read() if word == _FROM_STDIN else word


def _refuse_unknown(path: str, agent: str) -> None:
    try:
        agents = load_agents(path)
    except Exception as why:  # noqa: BLE001 - importing the registry runs code of the application
        remark(f"warning: the agents cannot be checked here ({why}); the worker decides whether {agent!r} exists")
        return
    agents.get(agent)


def _tell(submitted: Submitted, arguments: Namespace) -> None:
    if arguments.json:
        say_json({"run_id": submitted.run_id, "created": submitted.created})
        return
    key = f"key {arguments.key!r} already stands for it"
    told = f"run {submitted.run_id}: {'submitted' if submitted.created else key}"
    if arguments.tail:
        remark(told)
    else:
        say(told)
        remark(f"follow it with: runner tail {submitted.run_id}")
