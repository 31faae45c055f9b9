"""The supervisor process: sweeps, and says that it lives.

Rules of this file: it runs no user code and knows no agents; a server that is away is waited for; as many
supervisors as one likes may run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

from runner import ids
from runner.bootstrap import close_links, make_links
from runner.clock import monotonic_ms
from runner.engine.runtime import Links
from runner.engine.supervision import sweep
from runner.errors import RunnerError
from runner.settings import Settings
from runner.store import calls
from runner.store.records import ProcessFacts
from runner.store.server import check_server
from runner.telemetry import log

_log = log("supervisor")

TIDY_MS = 30_000
"""How often what dead workers left in RQ is cleared away."""


def run_supervisor(settings: Settings) -> int:
    """Sweeps until SIGTERM or SIGINT; returns the exit code. Raises a ServerError when it could not work at all."""
    asyncio.run(_supervise(settings))
    return 0


async def _supervise(settings: Settings) -> None:
    links = make_links(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await check_server(links.store, allow_eviction=settings.allow_eviction)
        facts = ProcessFacts(
            id=ids.new_process_id(), pid=os.getpid(), parent_pid=os.getppid(), host=socket.gethostname()
        )
        _log.info("supervisor.started", process_id=facts.id, sweep_ms=settings.sweep_ms)
        await Supervisor(links, facts).run(stop)
    finally:
        await close_links(links)


class Supervisor:
    """Sweeps every `sweep_ms`, beats every `beat_ms`, tidies RQ every TIDY_MS."""

    def __init__(self, links: Links, facts: ProcessFacts) -> None:
        self._links, self._facts = links, facts
        self._beat_due_ms = self._tidy_due_ms = monotonic_ms()
        self._stuck: frozenset[bytes] = frozenset()

    async def run(self, stop: asyncio.Event) -> None:
        """Sweeps until `stop` is set."""
        sweep_s = self._links.settings.sweep_ms / 1_000
        while not stop.is_set():
            try:
                await self._once()
            except RunnerError as why:
                _log.warning("supervisor.server-away", why=str(why))
            except Exception:  # noqa: BLE001 - whatever it is, no run is brought back by a supervisor that ended
                _log.exception("supervisor.sweep-broke")
            try:
                async with asyncio.timeout(sweep_s):
                    await stop.wait()
            except TimeoutError:
                continue
        with contextlib.suppress(RunnerError):
            await self._links.store.run(calls.forget_process(self._links.keys.supervisors, self._facts.id))

    async def _once(self) -> None:
        await sweep(self._links)
        now_ms = monotonic_ms()
        if now_ms >= self._beat_due_ms:
            self._beat_due_ms = now_ms + self._links.settings.beat_ms
            await self._links.store.run(calls.process_beat(self._links.keys.supervisors, self._facts))
        if now_ms >= self._tidy_due_ms:
            self._tidy_due_ms = now_ms + TIDY_MS
            self._stuck = await asyncio.to_thread(self._links.dispatcher.tidy, self._stuck)
