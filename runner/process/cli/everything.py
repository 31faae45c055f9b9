"""`up`: a server, workers and a supervisor in one terminal.

Rules of this file: each program is a process of its own, in a process group of its own, so that a Ctrl-C reaches it
once, from here; one that ends unasked is started again, later each time; one that refuses its configuration ends it
all, because starting it again cannot help. An embedded server that was killed is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from runner.bootstrap import check_store, load_agents
from runner.clock import monotonic_ms
from runner.errors import RunnerError
from runner.process.address import keep_server, where, with_server
from runner.process.cli.printing import remark, say, say_json
from runner.settings import Settings, load_settings

STOP_S = 15.0
"""How long a program may take to stop before it is killed."""
LONG_LIFE_MS = 10_000
"""A program that lived for longer is started again at once the next time."""
LONGEST_PAUSE_S = 30.0
SERVER_CHECK_S = 1.0
_USAGE = 2


@dataclass(slots=True)
class Stop:
    """The wish that everything ends, and the signal that carries it on."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = signal.SIGTERM

    def ask(self, number: int) -> None:
        """Passes this signal on, once."""
        if not self.asked.is_set():
            self.number = signal.SIGTERM if number == signal.SIGHUP else number
            self.asked.set()


class Program:
    """One child process that is kept running."""

    def __init__(self, name: str, options: list[str], stop: Stop) -> None:
        self.name = name
        self._words = [sys.executable, "-m", "runner", name, *options, "--stop-with-parent", str(os.getpid())]
        self._stop = stop
        self._killed = False

    async def keep(self) -> int:
        """Runs the program, again and again, until all is to stop; returns the exit code that this calls for."""
        failures = 0
        while True:
            began_ms = monotonic_ms()
            code = await self._run()
            if self._stop.asked.is_set():
                return int(self._killed)
            if code == _USAGE:
                remark(f"the {self.name} refuses its configuration; stopping everything")
                return _USAGE
            failures = 0 if monotonic_ms() - began_ms > LONG_LIFE_MS else failures + 1
            pause_s = min(LONGEST_PAUSE_S, 0.5 * 2 ** (failures - 1)) if failures else 0.0
            remark(f"the {self.name} {_ending(code)}; starting it again in {pause_s:g} s")
            await _first(asyncio.sleep(pause_s), self._stop.asked.wait())
            if self._stop.asked.is_set():
                return 0

    async def _run(self) -> int:
        process = await asyncio.create_subprocess_exec(*self._words, process_group=0)
        await _first(process.wait(), self._stop.asked.wait())
        if process.returncode is None:
            await self._end(process)
        return await process.wait()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(self._stop.number)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            remark(f"the {self.name} does not stop within {STOP_S:g} s; killing it")
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def run_up(arguments: Namespace) -> int:
    """Runs everything until it is told to stop."""
    overrides = {} if arguments.concurrency is None else {"concurrency": arguments.concurrency}
    settings = load_settings(**overrides)
    load_agents(settings.agents)  # what every worker would refuse is refused before anything starts
    with with_server(settings) as served:
        asyncio.run(check_store(served))
        _tell(arguments, settings, served)
        return asyncio.run(_run_all(arguments, settings))


async def _run_all(arguments: Namespace, settings: Settings) -> int:
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.ask, number)
    shared = ["--log-level", arguments.log_level] if arguments.log_level else []
    shared += ["--json"] if arguments.json else []
    worker = ["--processes", str(arguments.processes), *shared]
    worker += [] if arguments.concurrency is None else ["--concurrency", str(arguments.concurrency)]
    programs = [Program("worker", worker, stop), Program("supervisor", shared, stop)]
    keeps = [loop.create_task(program.keep()) for program in programs]
    tending = loop.create_task(_tend_server(settings))
    await asyncio.wait(keeps, return_when=asyncio.FIRST_COMPLETED)
    stop.ask(signal.SIGTERM)
    codes = await asyncio.gather(*keeps)
    tending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await tending
    return max(codes)


async def _tend_server(settings: Settings) -> None:
    while settings.redis_url is None:
        await asyncio.sleep(SERVER_CHECK_S)
        try:
            if await asyncio.to_thread(keep_server, settings):
                remark("the embedded server was gone; it runs again, with its data")
        except (RunnerError, OSError) as why:
            remark(f"the embedded server is gone and does not start: {why}")


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when one of the waits is over; the others are given up."""
    waiting = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for wait in waiting:
        wait.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _tell(arguments: Namespace, settings: Settings, served: Settings) -> None:
    if arguments.json:
        facts = {"redis_url": served.redis_url, "processes": arguments.processes, "concurrency": settings.concurrency}
        say_json(facts)
        return
    places = arguments.processes * settings.concurrency
    say(f"server      {where(settings)}")
    say(f"workers     {arguments.processes} processes, {places} turns at a time, agents from {settings.agents}")
    say("supervisor  1 process; it brings back runs that stopped")
    say()
    say("Try, in another terminal of the same directory:")
    say('  runner submit storyteller --message "Tell me about the sea." --tail')
    say("  runner doctor")
    say("Ctrl-C here ends all three. Nothing that was submitted is lost; start again and it goes on.")
    say()
