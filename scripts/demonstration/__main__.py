"""Runs the demonstration: start everything, two turns, the table, one JSON line, stop everything.

Rule of this file: the exit code says it all: 0 every promise kept, 1 one was not, 2 not started, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from signal import Signals

from demonstration.promises import judge, summary
from demonstration.screen import Screen
from demonstration.services import NotStarted, Services
from demonstration.turn import Turn, Witnessed
from runner.client import Runner
from runner.core.run import State
from runner.errors import MissingExtra, RunnerError
from runner.telemetry import set_up_logging

TITLES = {
    Signals.SIGKILL: "Turn 1: the worker is killed in the middle of a sentence",
    Signals.SIGTERM: "Turn 2: the worker is told to stop in the middle of a sentence",
}
PROMPTS = {
    Signals.SIGKILL: (
        "Tell me a long story about a lighthouse keeper who counts the waves.",
        "Tell me a long story about a village that builds a bridge over a wide river.",
        "Tell me a long story about two sisters who sail around the world.",
    ),
    Signals.SIGTERM: (
        "Tell me a long story about an old clockmaker and a bird.",
        "Tell me a long story about a baker who wakes before everybody else.",
        "Tell me a long story about a child who finds a map.",
    ),
}

Turns = list[tuple[Signals, Witnessed]]


class NotInterrupted(Exception):
    """Every answer ended before it could be interrupted, so nothing was shown."""


async def one_turn(runner: Runner, screen: Screen, number: Signals) -> Witnessed:
    """The first turn that was really interrupted, or that failed. Raises NotInterrupted."""
    screen.heading(TITLES[number])
    for prompt in PROMPTS[number]:
        screen.line(f"   user: {prompt}")
        screen.line()
        witnessed = await Turn(runner, screen, number).watch(prompt)
        if witnessed.was_interrupted or witnessed.view.record.state != State.COMPLETED:
            return witnessed
        screen.progress("that answer ended before it could be interrupted; asking for another one")
    raise NotInterrupted(f"{len(PROMPTS[number])} answers ended before {number.name} reached them; run it again")


async def two_turns(services: Services, screen: Screen, turns: Turns) -> None:
    """Fills `turns`, so that what was seen before a failure is still there."""
    async with Runner.from_url(services.url) as runner:
        pids = await services.ready(runner)
        screen.progress(f"ready; worker processes {', '.join(map(str, pids))}")
        for number in (Signals.SIGKILL, Signals.SIGTERM):
            turns.append((number, await one_turn(runner, screen, number)))


def conclude(screen: Screen, model: str, turns: Turns, broken: list[str]) -> int:
    """The table and the JSON line; returns the exit code."""
    screen.heading("What was promised, and what was seen")
    for number, turn in turns:
        screen.line(f"  {TITLES[number]}")
        for judged in judge(number, turn):
            screen.verdict(kept=judged.kept, promise=judged.promise, seen=judged.seen)
            broken += [] if judged.kept else [f"{number.name}: {judged.promise} ({judged.seen})"]
    if model == "scripted" and len({turn.live.text for _, turn in turns}) > 1:
        broken.append("the same story was told twice, and the two texts differ")
    for what in broken:
        screen.line(f"demo: NOT KEPT: {what}")
    screen.line()
    screen.line(json.dumps(summary(model, turns, broken), ensure_ascii=False))
    return 1 if broken else 0


def demonstrate(screen: Screen, model: str) -> int:
    """Everything, with all that was started stopped at the end; returns the exit code."""
    turns: Turns = []
    broken: list[str] = []
    screen.progress("starting a server, a pool of two worker processes and a supervisor")
    with Services(model, screen.progress) as services:
        try:
            asyncio.run(two_turns(services, screen, turns))
        except (NotInterrupted, RunnerError, TimeoutError) as why:
            broken.append(str(why) or "a turn did not end in time")
            screen.line(services.last_words())
        screen.line()
        screen.progress("stopping everything")
    return conclude(screen, model, turns, broken)


def main() -> int:
    """Parses the command line and runs the demonstration."""
    parser = argparse.ArgumentParser(prog="scripts/demo")
    parser.add_argument("--model", choices=("local", "scripted"), default="local")
    model = parser.parse_args().model
    for name in [name for name in os.environ if name.startswith("RUNNER_")]:
        del os.environ[name]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    set_up_logging("ERROR")  # the programs log to files; here a person reads
    screen = Screen()
    try:
        return demonstrate(screen, model)
    except KeyboardInterrupt:
        screen.line("demo: interrupted; everything that it started is stopped")
        return 130
    except MissingExtra as why:
        screen.line(f"demo: {why}\ndemo: or, without a model: scripts/demo --model scripted")
    except (NotStarted, RunnerError, OSError) as why:
        screen.line(f"demo: could not start: {why}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
