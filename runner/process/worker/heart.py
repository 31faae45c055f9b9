"""The heart of a worker process: one thread that says the process lives, for all its turns in one call.

Rules of this file: it beats off the turns' own event loop, so a busy loop loses no lease; but a loop that is stuck for
longer than its limit stops the heart, because turns that cannot move must be seen as lost.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time

from runner.clock import monotonic_ms
from runner.engine.hosting import Hosted
from runner.errors import RunnerError
from runner.settings import Settings
from runner.store import calls
from runner.store.executor import SyncExecutor
from runner.store.keys import Keys
from runner.store.records import ProcessFacts
from runner.telemetry import log

_log = log("heart")

LOOP_STUCK = 71
"""Exit code of a process whose event loop does not come back."""
DEAF_S = 5.0
"""How long a turn in a process of its own may ignore that it was cancelled or lost before the process is ended."""
LAPSED_LEASES = 10
"""After this many leases beyond its limit a stuck loop is given up: its turns are long with others, and the process
would only hold its place in the pool."""


class Heart:
    """Beats every `beat_ms` from its own thread, over a store of its own, until it is stopped."""

    def __init__(
        self,
        settings: Settings,
        store: SyncExecutor,
        hosted: Hosted,
        loop: asyncio.AbstractEventLoop,
        facts: ProcessFacts | None,
    ) -> None:
        """With `facts` the process is listed among the workers and its loop is watched; without, its parent is the
        one to list, and a turn may burn the CPU for as long as it likes: only its silence is judged."""
        self._settings, self._store, self._hosted, self._loop = settings, store, hosted, loop
        self._key = Keys(settings.key_prefix).workers
        self._facts = facts
        self._stop = threading.Event()
        self._loop_seen_ms = monotonic_ms()
        self._asked = False
        self._told_s = 0.0
        self.missed = 0
        """Beats that came later than twice their time, or were withheld."""
        self.stuck = False
        """Whether the event loop has not answered for longer than its limit."""
        self._thread = threading.Thread(target=self._beat_forever, name="heart", daemon=True)

    def start(self) -> None:
        """Starts beating."""
        self._thread.start()

    def stop(self) -> None:
        """Stops beating and takes the process off the list of those that live."""
        self._stop.set()
        self._thread.join(timeout=self._settings.command_timeout_ms / 1_000)

    def _beat_forever(self) -> None:
        last_ms = monotonic_ms()
        while True:
            try:
                self._beat()
            except RunnerError as why:
                _log.warning("heart.missed", why=str(why))
                self.missed += 1
            except Exception:  # noqa: BLE001 - a heart that stopped would lose every turn of the process
                _log.exception("heart.broke")
                self.missed += 1
            if self._stop.wait(self._settings.beat_ms / 1_000):
                break
            now_ms = monotonic_ms()
            self.missed += now_ms - last_ms > 2 * self._settings.beat_ms
            last_ms = now_ms
        self._say_goodbye()

    def _beat(self) -> None:
        if self._facts is not None:
            self.stuck = self._loop_is_stuck()
        if self.stuck:
            self.missed += 1
            _log.error("heart.loop-stuck", limit_ms=self._settings.loop_lag_limit_ms, turns=len(self._hosted))
        else:
            self._renew()
        if self._facts is not None:
            now = {"running": len(self._hosted), "missed_beats": self.missed}
            self._store.run(calls.process_beat(self._key, self._facts.model_copy(update=now)))

    def _renew(self) -> None:
        told = self._hosted.beat(self._store, lease_ms=self._settings.lease_ms)
        for turn, code in told:
            self._loop.call_soon_threadsafe(turn.answered, code)
        self._told_s = (self._told_s or time.monotonic()) if told else 0.0
        if self._facts is None and told and time.monotonic() - self._told_s > DEAF_S:
            _log.critical("heart.turn-does-not-listen", turns=len(told))
            os._exit(LOOP_STUCK)

    def _loop_is_stuck(self) -> bool:
        lag_ms = monotonic_ms() - self._loop_seen_ms if self._asked else 0
        if not self._asked:
            self._asked = True
            self._loop_seen_ms = monotonic_ms()
            self._loop.call_soon_threadsafe(self._loop_answers)
        limit_ms = self._settings.loop_lag_limit_ms
        if lag_ms > limit_ms + LAPSED_LEASES * self._settings.lease_ms:
            _log.critical("heart.process-given-up", lag_ms=lag_ms, turns=len(self._hosted))
            os._exit(LOOP_STUCK)
        return lag_ms > limit_ms

    def _loop_answers(self) -> None:
        self._asked = False

    def _say_goodbye(self) -> None:
        if self._facts is None:
            return
        try:
            self._store.run(calls.forget_process(self._key, self._facts.id))
        except RunnerError as why:
            _log.warning("heart.no-goodbye", why=str(why))


def facts_of_this_process(settings: Settings, process_id: str) -> ProcessFacts:
    """What a worker process is listed with."""
    return ProcessFacts(
        id=process_id,
        pid=os.getpid(),
        parent_pid=os.getppid(),
        host=socket.gethostname(),
        capacity=settings.concurrency,
        queue=settings.queue,
    )
