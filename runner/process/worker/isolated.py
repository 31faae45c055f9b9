"""The worker that forks a process for each turn: for work that burns the CPU or is not trusted.

Rules of this file: one turn at a time; the process of a turn (the horse) dies with its parent, so that no orphan writes
on; a stop is passed on to the horse, which hands its turn over; a horse that died has its lease ended at once. The
horse owns its turn in its worker's name, so the pool that sees the worker die ends the lease too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

from rq.job import Job

from runner.agent import Agents
from runner.bootstrap import close_runtime, install, make_beat_store, make_runtime, make_sync_store, server_url
from runner.errors import RunnerError
from runner.process.lifeline import end_with_parent
from runner.process.worker.heart import Heart, facts_of_this_process
from runner.process.worker.queue_worker import QueueWorker, check_job
from runner.settings import Settings
from runner.store import calls
from runner.store.answers import Code
from runner.store.connection import LOST
from runner.store.keys import Keys
from runner.telemetry import log

_log = log("isolated")

WAIT_SLICE_S = 0.05


class IsolatedWorker(QueueWorker):
    """A genuine RQ worker that runs each turn in a forked process."""

    pop_s = 0.2  # a signal does not interrupt a pop, and here nobody else can

    def __init__(self, settings: Settings, agents: Agents, process_id: str) -> None:
        self._agents = agents
        self._horse = 0
        self._facts = facts_of_this_process(settings.model_copy(update={"concurrency": 1}), process_id)
        self._listing = make_sync_store(settings, retries=0)
        self._listed_s = 0.0
        super().__init__(settings, settings.broker_url or server_url(settings), process_id)

    def has_slot(self, wait_s: float) -> bool:  # noqa: ARG002 - the shape of the shared method
        """Always: the loop that asks is the one that waits for the turn."""
        return True

    def free_slot(self) -> None:
        """Nothing to give back."""

    def is_idle(self) -> bool:
        """Whether no turn is running."""
        return self._horse == 0

    def execute_job(self, job: Job, queue: Any) -> None:  # noqa: ARG002 - the shape of RQ's method
        """Forks, waits, and accounts for how the horse ended."""
        execution = self.start_in_rq(job)
        if execution is None:
            return
        run_id, epoch = check_job(job)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        self._horse = os.fork()
        if self._horse == 0:
            self._be_horse(run_id, epoch)
        if self._stop_requested:
            self._pass_on_stop()
        code = self._wait_for_horse()
        self._horse = 0
        failed = None if code == 0 else f"the turn's process ended with {code}"
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._end_lease(run_id, cause)  # refused by the store when the turn has left its run, as it should have
        self.finish_in_rq(job, execution, failed=failed)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Also lists the worker among those that live, whether it has a turn or not."""
        super().heartbeat(timeout, pipeline)
        if pipeline is not None or time.monotonic() - self._listed_s < self.settings.beat_ms / 1_000:
            return
        self._listed_s = time.monotonic()
        facts = self._facts.model_copy(update={"running": int(not self.is_idle())})
        with contextlib.suppress(RunnerError):
            self._listing.run(calls.process_beat(Keys(self.settings.key_prefix).workers, facts))

    def cancel_run(self, run_id: str) -> None:
        """Cancels durably; the horse hears of it at its next append or heartbeat."""
        store = make_sync_store(self.settings, retries=self.settings.command_retries)
        store.run(calls.cancel(Keys(self.settings.key_prefix).of_run(run_id)))
        store.close()

    def _shutdown(self) -> None:
        """Called inside the signal handler: marks, and passes the stop on."""
        self._stop_requested = True
        self._pass_on_stop()

    def request_force_stop(self, signum: int, frame: Any) -> None:
        """A second signal changes nothing: the hand-over is already bounded."""

    def teardown(self) -> None:
        """Leaves RQ and the list of those that live."""
        with contextlib.suppress(*LOST):
            super().teardown()  # type: ignore[no-untyped-call]
        with contextlib.suppress(RunnerError):
            self._listing.run(calls.forget_process(Keys(self.settings.key_prefix).workers, self.name))
        self._listing.close()

    def _pass_on_stop(self) -> None:
        if self._horse > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._horse, signal.SIGTERM)

    def _wait_for_horse(self) -> int:
        while True:
            pid, status = os.waitpid(self._horse, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            self.heartbeat()
            signal.sigtimedwait({signal.SIGCHLD}, WAIT_SLICE_S)

    def _end_lease(self, run_id: str, cause: str) -> None:
        keys = Keys(self.settings.key_prefix)
        try:
            code = self._listing.run(calls.expire_lease(keys.of_run(run_id), owner=self.name, cause=cause))
        except RunnerError as why:
            _log.warning("isolated.lease-left-to-run-out", run_id=run_id[:80], why=str(why))
            return
        if code is Code.OK:
            _log.warning("isolated.turn-lost", run_id=run_id, cause=cause)

    def _be_horse(self, run_id: str, epoch: int) -> NoReturn:
        """Runs one turn and exits. What an agent left running is not waited for: it could go on for ever."""
        code = 1
        try:
            end_with_parent(self._facts.pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            asyncio.new_event_loop().run_until_complete(self._one_turn(run_id, epoch))
            code = 0
        except BaseException:  # noqa: BLE001 - a horse must never return into its parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    async def _one_turn(self, run_id: str, epoch: int) -> None:
        loop = asyncio.get_running_loop()
        settings = self.settings.model_copy(update={"concurrency": 1})
        runtime = make_runtime(settings, self._agents, self.name)
        runtime.requeue.may_enqueue.set()
        install(runtime)
        heart = Heart(settings, make_beat_store(settings), runtime.hosted, loop, None)
        heart.start()
        turn = loop.create_task(_entry_point(run_id, epoch))

        def hand_over() -> None:
            grace_s = settings.handover_grace_ms / 1_000
            stopping.append(loop.create_task(runtime.hosted.hand_over(grace_s=grace_s)))

        stopping: list[asyncio.Task[int]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, hand_over)
        if self._stop_requested:  # by a signal that came before there was anybody to take it
            hand_over()
        await turn
        await asyncio.gather(*stopping)
        await runtime.requeue.drained()
        await asyncio.to_thread(heart.stop)
        await close_runtime(runtime)


async def _entry_point(run_id: str, epoch: int) -> None:
    from rq.utils import import_attribute

    from runner.dispatch import EXECUTE

    await import_attribute(EXECUTE)(run_id, epoch)
