"""The worker that hosts many turns in one process.

Rules of this file: the main thread is RQ's work loop and nothing else; one thread runs the event loop with all turns; a
stop first ends the popping, then hands every turn over; no signal does any I/O where it lands.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rq.executions import Execution
from rq.job import Job

from runner.bootstrap import close_runtime, install, make_beat_store, make_runtime, server_url
from runner.engine import inspection
from runner.engine.runtime import Runtime
from runner.errors import RunnerError
from runner.process.worker.heart import Heart, facts_of_this_process
from runner.process.worker.queue_worker import QueueWorker, check_job
from runner.settings import Settings
from runner.store.connection import LOST
from runner.telemetry import log

T = TypeVar("T")

_log = log("worker")

LOOP_ENDED = 70
"""Exit code of a process whose event loop ended by itself."""
UNBLOCK_EVERY_S = 0.01
BOOKKEEPING_S = 2.0
"""How long RQ's bookkeeping of the last turns may take at the end."""


class TurnLoop:
    """The event loop of a worker process, in a thread of its own, with the runtime that lives on it."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="turns", daemon=True)
        self._thread.start()
        self.runtime = self.wait(self._make(make))

    def wait(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs a coroutine on the loop from another thread and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def close(self) -> None:
        """Closes the runtime and stops the loop."""
        with contextlib.suppress(TimeoutError, RunnerError):
            self.wait(close_runtime(self.runtime), BOOKKEEPING_S)
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(BOOKKEEPING_S)

    def _run(self) -> None:
        """Runs the loop. Without it the process is of no use and would only hold leases, so it ends with it."""
        try:
            self.loop.run_forever()
        finally:
            if not self._closing:
                traceback.print_exc()
                os._exit(LOOP_ENDED)

    @staticmethod
    async def _make(make: Callable[[], Runtime]) -> Runtime:
        return make()


class TurnWorker(QueueWorker):
    """A genuine RQ worker with up to `settings.concurrency` turns at a time."""

    def __init__(self, settings: Settings, agents: Any, process_id: str) -> None:
        self._running = 0
        self._count = threading.Condition()
        self._turns = TurnLoop(lambda: make_runtime(settings, agents, process_id))
        self.runtime = self._turns.runtime
        install(self.runtime)
        self._slots = threading.BoundedSemaphore(settings.concurrency)
        self._beats = make_beat_store(settings)
        facts = facts_of_this_process(settings, process_id)
        self._heart = Heart(settings, self._beats, self.runtime.hosted, self._turns.loop, facts)
        self._left_queue = threading.Event()
        self._draining: asyncio.Task[None] | None = None
        super().__init__(settings, settings.broker_url or server_url(settings), process_id)

    def bootstrap(self, *args: Any, **options: Any) -> None:
        """Registers with RQ and starts the heart."""
        super().bootstrap(*args, **options)
        self._heart.start()
        _log.info("worker.started", process_id=self.name, concurrency=self.settings.concurrency)

    def has_slot(self, wait_s: float) -> bool:
        """Takes a slot, waiting up to `wait_s`. None while the event loop is stuck: it would start nothing."""
        if self._heart.stuck:
            time.sleep(wait_s)
            return False
        return self._slots.acquire(timeout=wait_s)

    def free_slot(self) -> None:
        """Gives a slot back."""
        self._slots.release()

    def is_idle(self) -> bool:
        """Whether no turn is running."""
        return self._running == 0

    def execute_job(self, job: Job, queue: Any) -> None:  # noqa: ARG002 - the shape of RQ's method
        """Starts the turn on the loop and returns at once."""
        execution = self.start_in_rq(job)
        if execution is None:
            self.free_slot()
            return
        with self._count:
            self._running += 1
        asyncio.run_coroutine_threadsafe(self._turn(job, execution), self._turns.loop)

    async def _turn(self, job: Job, execution: Execution) -> None:
        failed: str | None = None
        try:
            await job.func(*check_job(job))
        except Exception:  # noqa: BLE001 - whatever broke, the slot is freed and the run is the supervisor's
            failed = traceback.format_exc()
            _log.error("worker.turn-broke", job_id=job.id, error=failed.strip().splitlines()[-1][:200])
        try:
            await asyncio.to_thread(self.finish_in_rq, job, execution, failed=failed)
        finally:
            self.free_slot()
            with self._count:
                self._running -= 1
                self._count.notify_all()

    def cancel_run(self, run_id: str) -> None:
        """Cancels durably, and at once for the turn that runs here."""

        async def cancel() -> None:
            await inspection.cancel(self.runtime, run_id)
            self.runtime.hosted.cancel(run_id)

        asyncio.run_coroutine_threadsafe(cancel(), self._turns.loop)

    def _shutdown(self) -> None:
        """Called inside the signal handler: only marks and schedules."""
        self._stop_requested = True
        self._turns.loop.call_soon_threadsafe(self._begin_drain)

    def request_force_stop(self, signum: int, frame: Any) -> None:
        """A second signal changes nothing: the hand-over is already as quick as it can be, and bounded."""

    def teardown(self) -> None:
        """Hands over what still runs, waits for the bookkeeping, and leaves."""
        self._left_queue.set()
        if self._stop_requested or not self.is_idle():
            self._turns.wait(self._drained())
        with self._count:
            self._count.wait_for(self.is_idle, BOOKKEEPING_S)
        with contextlib.suppress(TimeoutError):  # turns that were popped at the last moment
            self._turns.wait(self.runtime.requeue.drained(), BOOKKEEPING_S)
        self._heart.stop()
        with contextlib.suppress(*LOST):
            super().teardown()  # type: ignore[no-untyped-call]
        install(None)
        self._turns.close()
        self._beats.close()
        _log.info("worker.stopped", process_id=self.name)

    def _begin_drain(self) -> None:
        if self._draining is None:
            self._draining = self._turns.loop.create_task(self._drain())

    async def _drained(self) -> None:
        self._begin_drain()
        assert self._draining is not None
        await self._draining

    async def _drain(self) -> None:
        leaving = asyncio.ensure_future(self._leave_queue())
        left = await self.runtime.hosted.hand_over(grace_s=self.settings.handover_grace_ms / 1_000)
        await leaving
        if left:
            _log.error("worker.turns-left-to-supervisor", turns=left)
        await self.runtime.requeue.drained()

    async def _leave_queue(self) -> None:
        """Gets the main thread out of its blocking pop; only then may turns go back to the queue."""
        while not self._left_queue.is_set():
            with contextlib.suppress(*LOST):
                await asyncio.to_thread(self.unblock)
            await asyncio.sleep(UNBLOCK_EVERY_S)
        self.runtime.requeue.may_enqueue.set()
