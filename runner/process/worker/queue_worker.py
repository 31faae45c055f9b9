"""What every worker of ours shares: a genuine RQ worker on exactly one queue, with RQ's own rescue work switched off.

Rules of this file: a job is popped only when there is a slot for it, and a job popped while stopping is put back;
nothing raised here ends the worker, because a job that got lost on the way is enqueued again from the record; RQ's
registries are kept for people to look at and decide nothing.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

import redis
from rq import Queue
from rq.command import handle_shutdown_command, parse_payload
from rq.exceptions import StopRequested
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.timeouts import TimerDeathPenalty
from rq.worker.base import BaseWorker, WorkerStatus

from runner.dispatch import ForbiddenJob, TurnJob
from runner.errors import RunnerError
from runner.settings import Settings
from runner.store.connection import LOST, retry_delay_ms, sync_client
from runner.telemetry import log

_log = log("worker")

PASSING = (*LOST, redis.ResponseError)
"""Trouble with the broker that may pass: it is away, or it refuses (out of memory, a key of the wrong type)."""
POP_S = 1.0
"""How long one blocking pop lasts; a stop interrupts it."""
EXECUTION_TTL_S = 120
"""How long RQ shows an execution that nobody refreshes."""
SUSPENSION_S = 0.5
"""How late `rq suspend` may be noticed."""
RQ_BEAT_S = 10.0
"""How often RQ's own view of this worker is refreshed."""


class QueueWorker(BaseWorker):
    """An RQ worker that pops turns. Subclasses say how one is executed (`execute_job`) and how many fit."""

    pop_s = POP_S
    job_class = TurnJob
    death_penalty_class = TimerDeathPenalty

    def __init__(self, settings: Settings, url: str, name: str) -> None:
        self.settings = settings
        self._popper = sync_client(url, timeout_ms=settings.command_timeout_ms + int(POP_S * 1_000))
        self._popper_id = 0
        self._last_rq_beat = 0.0
        self._suspension_seen = 0.0
        super().__init__(
            [settings.queue],
            name=name,
            connection=sync_client(url, timeout_ms=settings.command_timeout_ms),
            job_class=TurnJob,
            serializer=JSONSerializer,
            log_job_description=False,
        )
        assert len(self.queues) == 1, "a worker of several queues loses the job it popped when it dies"

    @property
    def queue(self) -> Queue:
        """The one queue of this worker."""
        return self.queues[0]

    @property
    def stopping(self) -> bool:
        """Whether the worker was told to stop."""
        return self._stop_requested

    @property
    def should_run_maintenance_tasks(self) -> bool:
        """False: RQ's rescue work is not fenced and runs things twice; the supervisor does it from the record."""
        return False

    def _set_connection(self, connection: redis.Redis) -> redis.Redis:
        """Keeps the timeouts as they are: no command of ours blocks on this client."""
        return connection

    def bootstrap(self, *_: Any, **__: Any) -> None:
        """Registers the worker, with RQ's own logging kept down. Signals are taken first: a worker that is stopped
        right after it registered must leave RQ again."""
        self._install_signal_handlers()  # type: ignore[no-untyped-call]
        super().bootstrap(logging_level="WARNING")
        logging.getLogger("rq").setLevel(logging.WARNING)

    def has_slot(self, wait_s: float) -> bool:
        """Takes a slot for one more turn, waiting up to `wait_s`; False when there is none."""
        raise NotImplementedError

    def free_slot(self) -> None:
        """Gives a slot back."""
        raise NotImplementedError

    def is_idle(self) -> bool:
        """Whether no turn is running."""
        raise NotImplementedError

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """The next job, once there is a slot for it. None ends the work loop (burst mode or idle for too long)."""
        idle_since = time.monotonic()
        while True:
            self._leave_when_stopping()
            self.heartbeat()
            self._show_idle()
            self.check_for_suspension(timeout is None)
            if not self.has_slot(0.2):
                continue
            job = self._next_job(block=timeout is not None)
            if job is not None:
                return job, self.queue
            self.free_slot()
            if timeout is None and self.is_idle():
                return None
            if max_idle_time is not None and time.monotonic() - idle_since > max_idle_time:
                return None

    def check_for_suspension(self, burst: bool) -> None:
        """As RQ's, but asked every SUSPENSION_S only, and a lost connection is waited out."""
        if time.monotonic() - self._suspension_seen < SUSPENSION_S:
            return
        self._suspension_seen = time.monotonic()
        try:
            super().check_for_suspension(burst)
        except PASSING:
            _log.warning("worker.server-away", worker=self.name)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Refreshes RQ's view of this worker, at most every RQ_BEAT_S."""
        if pipeline is not None:
            super().heartbeat(timeout, pipeline=pipeline)
            return
        if time.monotonic() - self._last_rq_beat < RQ_BEAT_S:
            return
        self._last_rq_beat = time.monotonic()
        try:
            with self.connection.pipeline(transaction=False) as pipe:
                super().heartbeat(timeout, pipeline=pipe)
                for execution in list(self.executions.values()):
                    execution.heartbeat(self.queue.started_job_registry, EXECUTION_TTL_S, pipeline=pipe)
                pipe.execute()
        except PASSING:
            _log.warning("worker.server-away", worker=self.name)

    def set_state(self, state: str, pipeline: Any = None) -> None:
        """Never idle while turns run; writes only what changed."""
        if state == WorkerStatus.IDLE and not self.is_idle():
            state = WorkerStatus.BUSY
        if pipeline is not None or state != self._state:
            super().set_state(state, pipeline)

    def start_in_rq(self, job: Job) -> Execution | None:
        """Shows the job as started, in one trip, and takes it off the intermediate list. None when the server is
        away: the job is left to the supervisor."""
        try:
            with self.connection.pipeline(transaction=True) as pipe:
                execution = Execution.create(job, EXECUTION_TTL_S, pipeline=pipe, worker_name=self.name)
                job.prepare_for_execution(self.name, pipeline=pipe)
                pipe.lrem(self.queue.intermediate_queue_key, 1, job.id)
                self.set_state(WorkerStatus.BUSY, pipeline=pipe)
                pipe.execute()
        except PASSING:
            _log.warning("worker.server-away", worker=self.name)
            return None
        self.executions[execution.id] = execution
        return execution

    def finish_in_rq(self, job: Job, execution: Execution, *, failed: str | None) -> None:
        """Takes the job out of RQ, in one trip; a failed one is kept in RQ's failed registry to be looked at."""
        try:
            if failed is not None:
                self.handle_job_failure(job, self.queue, exc_string=failed, execution=execution)
                return
            with self.connection.pipeline(transaction=True) as pipe:
                self.cleanup_execution(job, pipeline=pipe, execution=execution)
                self.increment_successful_job_count(pipeline=pipe)
                pipe.delete(job.key)
                pipe.execute()
        except PASSING:
            _log.warning("worker.server-away", worker=self.name)
        finally:
            self.executions.pop(execution.id, None)

    def handle_payload(self, message: Any) -> None:
        """RQ's commands. Stopping a job or its execution cancels its run, whichever of the worker's turns it is.

        Everything else is ignored: anybody can write to the channel, and an error here would end the listening.
        """
        try:
            payload = parse_payload(message)
        except ValueError:
            payload = {}
        match payload:
            case {"command": "shutdown"}:
                handle_shutdown_command(self)
            case {"command": "stop-job", "job_id": str(job_id)}:
                self._cancel_executions(lambda execution: execution.job_id == job_id)
            case {"command": "stop-execution", "execution_id": str(execution_id)}:
                self._cancel_executions(lambda execution: execution.id == execution_id)
            case _:
                _log.warning("worker.command-ignored", worker=self.name)

    def cancel_run(self, run_id: str) -> None:
        """Cancels a run that this worker executes."""
        raise NotImplementedError

    def unsubscribe(self) -> None:
        """As RQ's, but the listener is told to end before it is woken: the other way round it may sleep on, and RQ
        waits a second for it."""
        listener: Any = self.pubsub_thread
        if listener is not None:
            listener.stop()
        super().unsubscribe()  # type: ignore[no-untyped-call]

    def unblock(self) -> None:
        """Makes a blocked pop return now. Safe to call from another thread, and when nothing blocks."""
        if self._popper_id:
            self.connection.client_unblock(self._popper_id)

    def _pubsub_exception_handler(self, exc: Exception, pubsub: Any, pubsub_thread: Any) -> None:
        """Keeps listening through every lost connection."""
        if not isinstance(exc, LOST):
            super()._pubsub_exception_handler(exc, pubsub, pubsub_thread)
        time.sleep(1.0)

    def _cancel_executions(self, is_meant: Callable[[Execution], bool]) -> None:
        for execution in filter(is_meant, list(self.executions.values())):
            try:
                self.cancel_run(execution.job_id.partition("_")[0])
            except RunnerError as why:
                _log.warning("worker.not-cancelled", job_id=execution.job_id, why=str(why))

    def _show_idle(self) -> None:
        if self.is_idle() and self.get_state() == WorkerStatus.BUSY:
            with contextlib.suppress(*PASSING):
                self.set_state(WorkerStatus.IDLE)

    def _leave_when_stopping(self) -> None:
        if self._stop_requested:
            raise StopRequested

    def _next_job(self, *, block: bool) -> Job | None:
        try:
            job_id = self._pop(block=block)
            if job_id is None:
                return None
            if self._stop_requested:
                self._put_back(job_id)
                return None
            return self._fetch(job_id)
        except PASSING as why:
            _log.warning("worker.server-away", worker=self.name, why=type(why).__name__)
            self._popper_id = 0
            time.sleep(retry_delay_ms(3) / 1_000)
            return None

    def _pop(self, *, block: bool) -> bytes | None:
        source, target = self.queue.key, self.queue.intermediate_queue_key
        if not block:
            popped: Any = self._popper.lmove(source, target)
        else:
            connection_id = self._popper_id or int(self._popper.client_id())
            self._popper_id = connection_id
            popped = self._popper.execute_command("BLMOVE", source, target, "LEFT", "RIGHT", self.pop_s)
        return None if popped is None else bytes(popped)

    def _put_back(self, job_id: bytes) -> None:
        with self._popper.pipeline(transaction=True) as pipe:
            pipe.execute_command("LREM", self.queue.intermediate_queue_key, 1, job_id)
            pipe.lpush(self.queue.key, job_id)
            pipe.execute()

    def _fetch(self, popped: bytes) -> Job | None:
        """The popped job; None for one that has no hash or was not made by a dispatcher."""
        job_id = popped.decode("utf-8", "replace")
        try:
            job = TurnJob.fetch(job_id, connection=self.connection, serializer=self.serializer)
            check_job(job)
        except PASSING:
            raise
        except Exception as why:  # noqa: BLE001 - a forged entry can raise anything; none of it may stop the worker
            _log.warning("worker.job-refused", job_id=job_id[:80], why=type(why).__name__)
            self._popper.execute_command("LREM", self.queue.intermediate_queue_key, 1, popped)
            return None
        return job


def check_job(job: Job) -> tuple[str, int]:
    """The run id and epoch that a job carries. Raises ForbiddenJob for anything else."""
    assert job.func is not None
    match job.args:
        case [str(run_id), int(epoch)] if not job.kwargs:
            return run_id, epoch
        case _:
            raise ForbiddenJob(job.id, "its arguments are not a run id and an epoch")
