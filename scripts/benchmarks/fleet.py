"""A fleet for one phase of a benchmark: pools of workers and a supervisor, with the same settings, on one server."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from benchmarks.programs import Program
from benchmarks.readiness import workers_ready
from runner.client import Runner
from runner.store.records import ProcessFacts


class Fleet:
    """Starts what it is asked for and stops all of it at the end."""

    def __init__(self, url: str, runner: Runner, **settings: str | int) -> None:
        self.runner, self.settings = runner, settings
        self._url = url
        self._programs: list[Program] = []

    async def __aenter__(self) -> Self:
        self._programs.append(Program(self._url, "supervisor", **self.settings))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in reversed(self._programs):
            await asyncio.to_thread(program.stop)

    def add_pool(self, processes: int) -> Program:
        """Starts a pool of so many processes."""
        pool = Program(self._url, "pool", processes, **self.settings)
        self._programs.append(pool)
        return pool

    async def busy(self, count: int, running: int = 1) -> list[ProcessFacts]:
        """The worker processes of this fleet, once `count` of them live and each runs at least `running` turns."""
        return await workers_ready(
            self.runner, count, lambda facts: facts.running >= running and facts.pid in self._processes()
        )

    def _processes(self) -> set[int]:
        return {pid for program in self._programs for pid in program.family()}
