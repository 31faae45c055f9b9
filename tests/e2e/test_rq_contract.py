"""What we use of RQ that RQ does not promise: each name is there, and takes what we hand it.

Rule of this file: one row for each name that the worker or the dispatcher overrides or calls; a release of RQ that
changes one is found here before it is found by a turn.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
from rq import Queue, command, executions, suspension
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.timeouts import TimerDeathPenalty
from rq.utils import as_text, import_attribute
from rq.worker.base import BaseWorker, WorkerStatus

from runner.dispatch import Dispatcher, Ticket, TurnJob
from runner.process.worker.queue_worker import QueueWorker
from tests.support.fleet import ROOT, Fleet
from tests.support.server import fresh_server


def test_rq_is_the_release_that_these_rows_were_read_from() -> None:
    installed = tuple(int(part) for part in metadata.version("rq").split(".")[:2])
    assert installed == (3, 0)
    assert re.search(r'"rq>=3\.0,<3\.1"', (ROOT / "pyproject.toml").read_text())


CALLED: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
    (executions.Execution.create, ("job", "ttl", "pipeline", "worker_name")),
    (executions.Execution.heartbeat, ("self", "started_job_registry", "ttl", "pipeline")),
    (Job.prepare_for_execution, ("self", "worker_name", "pipeline")),
    (Job.fetch, ("id", "connection", "serializer")),
    (Job.key_for, ("job_id",)),
    (Job.send_webhooks, ("self", "status")),
    (BaseWorker.cleanup_execution, ("self", "job", "pipeline", "execution")),
    (
        BaseWorker.handle_job_failure,
        ("self", "job", "queue", "started_job_registry", "exc_string", "execution"),
    ),
    (BaseWorker.increment_successful_job_count, ("self", "pipeline")),
    (BaseWorker.bootstrap, ("self", "logging_level", "date_format", "log_format")),
    (BaseWorker.work, ("self", "burst", "logging_level")),
    (BaseWorker.dequeue_job_and_maintain_ttl, ("self", "timeout", "max_idle_time")),
    (BaseWorker.execute_job, ("self", "job", "queue")),
    (BaseWorker.check_for_suspension, ("self", "burst")),
    (BaseWorker.heartbeat, ("self", "timeout", "pipeline")),
    (BaseWorker.set_state, ("self", "state", "pipeline")),
    (BaseWorker.get_state, ("self",)),
    (BaseWorker.teardown, ("self",)),
    (BaseWorker.unsubscribe, ("self",)),
    (BaseWorker.handle_payload, ("self", "message")),
    (BaseWorker.request_stop, ("self", "signum", "frame")),
    (BaseWorker.request_force_stop, ("self", "signum", "frame")),
    (BaseWorker._shutdown, ("self",)),
    (BaseWorker._install_signal_handlers, ("self",)),
    (BaseWorker._set_connection, ("self", "connection")),
    (BaseWorker._pubsub_exception_handler, ("self", "exc", "pubsub", "pubsub_thread")),
    (Queue.create_job, ("self", "func", "args")),
    (Queue.enqueue_job, ("self", "job", "pipeline", "at_front")),
    (command.parse_payload, ("payload",)),
    (command.handle_shutdown_command, ("worker",)),
    (suspension.is_suspended, ("connection",)),
    (as_text, ("v",)),
    (import_attribute, ("name",)),
]


@pytest.mark.parametrize(("function", "wanted"), CALLED, ids=lambda value: getattr(value, "__qualname__", ""))
def test_a_called_or_overridden_function_takes_what_we_hand_it(
    function: Callable[..., Any], wanted: tuple[str, ...]
) -> None:
    there = [name for name in inspect.signature(function).parameters if name != "cls"]
    if inspect.ismethod(function):
        wanted = tuple(name for name in wanted if name != "self")
    assert [name for name in there if name in wanted] == list(wanted), there


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (BaseWorker, "should_run_maintenance_tasks"),
        (Queue, "key"),
        (Queue, "intermediate_queue_key"),
        (Queue, "started_job_registry"),
        (Queue, "count"),
        (Job, "func"),
        (Job, "success_callback"),
        (Job, "failure_callback"),
        (Job, "stopped_callback"),
        (Job, "should_retry"),
        (executions.Execution, "composite_key"),
    ],
)
def test_a_property_is_a_property(owner: type, name: str) -> None:
    assert isinstance(inspect.getattr_static(owner, name), property)


def test_states_and_serializers_have_their_names() -> None:
    assert (WorkerStatus.BUSY, WorkerStatus.IDLE, WorkerStatus.SUSPENDED) == ("busy", "idle", "suspended")
    assert JSONSerializer.loads(JSONSerializer.dumps([1, "x"])) == [1, "x"]
    assert isinstance(TimerDeathPenalty, type)


def test_a_worker_holds_the_fields_that_we_read_and_set() -> None:
    """Set in RQ's constructor: a renamed one would be a new field that nobody reads."""
    with fresh_server() as server:
        fleet = Fleet(server)
        try:
            worker = BaseWorker(["turns"], name="w", connection=fleet.redis, serializer=JSONSerializer)
            assert worker._stop_requested is False
            assert worker._state == "starting"
            assert worker._stopped_job_id is None
            assert worker.pubsub_thread is None
            assert worker.executions == {}
            assert [queue.name for queue in worker.queues] == ["turns"]
            assert worker.serializer is JSONSerializer
        finally:
            fleet.close()


def test_every_private_name_that_we_use_has_a_row() -> None:
    """`self._x` of the workers is RQ's when RQ's worker has it: then it is covered above."""
    named = {function.__name__ for function, _ in CALLED} | {"_stop_requested", "_state", "_stopped_job_id"}
    used = set()
    for path in (ROOT / "runner/process/worker").glob("*.py"):
        used |= set(re.findall(r"\b(?:self|super\(\)|worker)\.(_[a-z]\w*)", path.read_text()))
    source = inspect.getsource(BaseWorker)
    of_rq = {name for name in used if re.search(rf"\b(?:self\.{name}\b|def {name}\b)", source)}
    assert {"_stop_requested", "_install_signal_handlers"} <= of_rq
    assert of_rq <= named, of_rq - named


def test_rq_never_rescues_what_our_workers_pop() -> None:
    assert inspect.getattr_static(QueueWorker, "should_run_maintenance_tasks") is not inspect.getattr_static(
        BaseWorker, "should_run_maintenance_tasks"
    )
    assert QueueWorker.job_class is TurnJob


def test_a_dispatched_job_is_what_rq_would_read() -> None:
    """The job's hash and its place in the list, read back by RQ itself with its retry, timeout and results off."""
    with fresh_server() as server:
        fleet = Fleet(server)
        try:
            dispatcher: Dispatcher = fleet.dispatcher
            dispatcher.enqueue([Ticket("a" * 26, 0), Ticket("b" * 26, 4)])
            dispatcher.enqueue([Ticket("c" * 26, 1), Ticket("d" * 26, 1)], at_front=True)
            queue = Queue("turns", connection=fleet.redis, serializer=JSONSerializer)
            assert queue.job_ids == ["c" * 26 + "_1", "d" * 26 + "_1", "a" * 26 + "_0", "b" * 26 + "_4"]
            job = Job.fetch("b" * 26 + "_4", connection=fleet.redis, serializer=JSONSerializer)
            assert (job.func_name, list(job.args), job.kwargs) == ("jobs.turn.execute", ["b" * 26, 4], {})
            assert (job.timeout, job.result_ttl, job.retries_left) == (-1, 0, None)
            assert queue.key == "rq:queue:turns"
            assert queue.intermediate_queue_key == "rq:queue:turns:intermediate"
            assert queue.started_job_registry.key == "rq:wip:turns"
        finally:
            fleet.close()
