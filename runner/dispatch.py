"""The dispatcher: the only place that puts jobs on RQ queues, and what a job may be.

Rules of this file: a job carries a run id and an epoch, as JSON, and nothing else; its function is one of
`ENTRY_POINTS`, whatever the job's hash says; its id is derived, so enqueuing again is harmless; RQ's own
timeout, retry and result keeping are off, because the run record is the truth.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import import_attribute

from runner.errors import RunnerError, ServerUnreachable

EXECUTE = "jobs.turn.execute"
ENTRY_POINTS = frozenset({EXECUTE})
"""Every function that a worker may be asked to call."""

FAILURE_TTL_S = 86_400

logging.getLogger("rq").setLevel(logging.WARNING)


class ForbiddenJob(RunnerError):
    """A job names something other than an entry point: it was not made by a dispatcher."""

    def __init__(self, job_id: str, what: str) -> None:
        self.job_id, self.what = job_id, what
        super().__init__(f"job {job_id} refused: {what}; someone else writes to this queue: restrict access to Redis")


class TurnJob(Job):
    """An RQ job that can be nothing but a turn."""

    @property
    def func(self) -> Callable[..., Any]:
        """The entry point. Raises ForbiddenJob for anything else."""
        if self.instance is not None:
            raise ForbiddenJob(self.id, "it calls a method of a stored object")
        if self.func_name not in ENTRY_POINTS:
            raise ForbiddenJob(self.id, "its function is not an entry point")
        entry_point: Callable[..., Any] = import_attribute(self.func_name)
        return entry_point

    @property
    def success_callback(self) -> None:
        """None: turns have no callbacks, whatever the hash says."""

    @property
    def failure_callback(self) -> None:
        """None, as `success_callback`."""

    @property
    def stopped_callback(self) -> None:
        """None, as `success_callback`."""

    @property
    def should_retry(self) -> bool:
        """False: whether a run is tried again is decided by its record."""
        return False

    def send_webhooks(self, *_: Any, **__: Any) -> None:
        """Sends nothing: a forged hash must not make a worker call addresses."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A run to be executed, at the epoch it must still have."""

    run_id: str
    epoch: int

    @property
    def job_id(self) -> str:
        """The id of its RQ job."""
        return f"{self.run_id}_{self.epoch}"


class Dispatcher:
    """Puts tickets on one RQ queue, over a client of its own (RQ changes the timeouts of the client it is given)."""

    def __init__(self, client: redis.Redis, queue: str) -> None:
        self._client = client
        self.queue_name = queue
        self.queue = Queue(queue, connection=client, job_class=TurnJob, serializer=JSONSerializer)

    def enqueue(self, tickets: Sequence[Ticket], *, at_front: bool = False) -> None:
        """Puts each ticket on the queue, in one trip. With `at_front` the first ticket ends up first.

        Raises ServerUnreachable; the dispatch entries are still there, so a supervisor repeats it.
        """
        try:
            with self._client.pipeline(transaction=True) as pipe:
                for ticket in reversed(tickets) if at_front else tickets:
                    self.queue.enqueue_job(self._job(ticket), pipeline=pipe, at_front=at_front)
                pipe.execute()
        except redis.RedisError as why:  # away, or refusing: both may pass
            raise ServerUnreachable("the broker", str(why)) from why

    def lost(self, tickets: Iterable[Ticket]) -> list[Ticket]:
        """Those whose job is not in the queue's list. A job that is being claimed right now counts as lost, which is
        harmless: the second one finds the run claimed."""
        try:
            held = set(_entries(self._client.lrange(self.queue.key, 0, -1)))
        except redis.RedisError as why:  # away, or refusing: both may pass
            raise ServerUnreachable("the broker", str(why)) from why
        return [ticket for ticket in tickets if ticket.job_id.encode() not in held]

    def depth(self) -> int:
        """How many jobs wait."""
        try:
            return self.queue.count
        except redis.RedisError as why:
            raise ServerUnreachable("the broker", str(why)) from why

    def tidy(self, stuck_before: frozenset[bytes]) -> frozenset[bytes]:
        """Clears away what lost workers left in RQ: executions that nobody refreshes, and intermediate entries that
        were there at the last call already (`stuck_before`). Runs are not touched: they are judged by their records.
        Returns what is in the intermediate list now."""
        try:
            return self._tidy(stuck_before)
        except redis.RedisError as why:  # away, or refusing: both may pass
            raise ServerUnreachable("the broker", str(why)) from why

    def _tidy(self, stuck_before: frozenset[bytes]) -> frozenset[bytes]:
        started = self.queue.started_job_registry.key
        waiting = set(_entries(self._client.lrange(self.queue.key, 0, -1)))
        stuck = frozenset(_entries(self._client.lrange(self.queue.intermediate_queue_key, 0, -1)))
        stale = _entries(self._client.zrangebyscore(started, "-inf", int(time.time())))
        with self._client.pipeline(transaction=False) as pipe:
            for entry in stuck & stuck_before:
                pipe.lrem(self.queue.intermediate_queue_key, 0, entry)  # type: ignore[arg-type]
            for member in stale:
                pipe.zrem(started, member)
                job_id = member.partition(b":")[0]
                if job_id not in waiting:
                    pipe.delete(TurnJob.key_for(job_id.decode("utf-8", "replace")))
            pipe.execute()
        return stuck

    def close(self) -> None:
        """Closes the client."""
        self._client.close()

    def _job(self, ticket: Ticket) -> Job:
        return self.queue.create_job(
            EXECUTE,
            args=(ticket.run_id, ticket.epoch),
            job_id=ticket.job_id,
            timeout=-1,
            result_ttl=0,
            failure_ttl=FAILURE_TTL_S,
            description="turn",
        )


def _entries(answer: Any) -> list[bytes]:
    """The entries of a list or registry as they are: a stranger may have written one that is no text."""
    return [bytes(entry) for entry in answer]
