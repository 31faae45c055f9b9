"""Who can write to Redis cannot run code in a worker, and cannot end it.

Rules of this file: forged jobs are written as raw hashes, as an intruder would; a canary file shows that code ran;
after each of them the same process runs the next good turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import socket
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rq.job import Job
from rq.serializers import DefaultSerializer, JSONSerializer
from rq.webhook import Webhook

from runner.client import Runner
from runner.dispatch import EXECUTE, Dispatcher, ForbiddenJob, Ticket, TurnJob
from tests.support.fleet import Fleet, play, start
from tests.support.server import fresh_server
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

JOB = "forged-1"
Fields = dict[str, bytes]


def calling(function: str, *args: Any, instance: Any = None, **kwargs: Any) -> bytes:
    """The data of a job that calls a function, as RQ's JSON serializer writes it."""
    return zlib.compress(json.dumps([function, instance, args, kwargs]).encode())


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self._command,)


def touching(canary: Path) -> str:
    return f"touch {canary}"


def _a_program(canary: Path) -> Fields:
    return {"data": calling("subprocess.check_output", ["touch", str(canary)])}


def _a_builtin(canary: Path) -> Fields:
    return {"data": calling("builtins.eval", f"__import__('pathlib').Path({str(canary)!r}).touch()")}


def _a_sibling_of_the_entry_point(canary: Path) -> Fields:
    return {"data": calling("jobs.turn.execution.os.system", touching(canary))}


def _a_method(canary: Path) -> Fields:
    return {"data": calling("touch", instance=str(canary))}


def _pickled_data(canary: Path) -> Fields:
    return {"data": zlib.compress(pickle.dumps(Bomb(touching(canary))))}


def _plain_pickled_data(canary: Path) -> Fields:
    return {"data": pickle.dumps((EXECUTE, None, (Bomb(touching(canary)),), {}))}


def _pickled_meta(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, "x", 0), "meta": pickle.dumps(Bomb(touching(canary)))}


def _pickled_result(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, "x", 0), "result": pickle.dumps(Bomb(touching(canary)))}


def _callbacks(canary: Path) -> Fields:
    names = {f"{what}_callback_name": b"os.system" for what in ("success", "failure", "stopped")}
    return {"data": calling(EXECUTE, "x", 0), **names}


def _keyword_arguments(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, run_id="x", epoch=0)}


def _too_many_arguments(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, "x", 0, touching(canary))}


def _arguments_of_wrong_types(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, ["x"], "0")}


def _no_run(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, "../../etc", 0)}


def _a_run_that_is_not_there(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, "00" + "f" * 24, 0)}


def _endless_retries(canary: Path) -> Fields:
    return {"data": calling(EXECUTE, "no-run", 0), "retries_left": b"1000000"}


def _nonsense(canary: Path) -> Fields:
    return {"data": b"\xff\x00garbage", "status": b"no such status", "timeout": b"x", "created_at": b"yesterday"}


def _no_data(canary: Path) -> Fields:
    return {"description": b"nothing else"}


def _deep_json(canary: Path) -> Fields:
    return {"data": zlib.compress(b"[" * 200_000)}


FORGERIES = [
    _a_program,
    _a_builtin,
    _a_sibling_of_the_entry_point,
    _a_method,
    _pickled_data,
    _plain_pickled_data,
    _pickled_meta,
    _pickled_result,
    _callbacks,
    _keyword_arguments,
    _too_many_arguments,
    _arguments_of_wrong_types,
    _no_run,
    _a_run_that_is_not_there,
    _endless_retries,
    _nonsense,
    _no_data,
    _deep_json,
]


def push(fleet: Fleet, fields: Fields, job: str = JOB) -> None:
    shape: Fields = {"origin": b"turns", "status": b"queued", "created_at": b"2026-01-01T00:00:00.000000Z"}
    mapping: Any = {**shape, **fields}
    fleet.redis.hset(f"rq:job:{job}", mapping=mapping)
    fleet.redis.rpush("rq:queue:turns", job)


@pytest.mark.parametrize("isolate", [False, True])
def test_no_forged_job_runs_code_or_ends_the_worker(isolate: bool) -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        canary = fleet.dir / "canary"
        pool = fleet.start_pool(isolate=isolate)
        child = pool.one_child()
        for number, forgery in enumerate(FORGERIES):
            push(fleet, forgery(canary), f"forged-{number}")
            await (await start(runner, "echo", forgery.__name__)).ended_as("completed")
            assert pool.one_child().pid == child.pid, forgery.__name__
            assert not canary.exists(), forgery.__name__
        await asyncio.to_thread(until, lambda: _at_rest(fleet), 10, "an empty queue")

    play(story)


def test_an_entry_that_is_no_text_ends_nobody() -> None:
    """A stranger may write anything into the lists: workers and supervisors go on, and sweep it away."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        for name in ("rq:queue:turns", "rq:queue:turns:intermediate"):
            fleet.redis.execute_command("RPUSH", name, b"\xff\xfe")
        fleet.start_supervisor()
        pool = fleet.start_pool()
        child = pool.one_child()
        reading = await start(runner, "counter", input={"n": 20, "pace_ms": 5})
        assert (await reading.counted(20)).attempts == 1
        dispatcher: Dispatcher = fleet.dispatcher
        dispatcher.tidy(dispatcher.tidy(frozenset()))
        await asyncio.to_thread(until, lambda: _at_rest(fleet), 10, "an empty queue")
        assert pool.one_child().pid == child.pid
        assert len(await runner.supervisors()) == 1

    play(story)


def _at_rest(fleet: Fleet) -> bool:
    return not fleet.redis.exists("rq:queue:turns", "rq:queue:turns:intermediate", "rq:wip:turns")


@pytest.mark.parametrize("run_id", ["", "no-run"])
def test_what_is_added_to_a_job_is_never_called(run_id: str) -> None:
    """Callbacks and webhooks written into the hash of a real job, and of one that fails in RQ."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        with socket.create_server(("127.0.0.1", 0)) as trap:
            trap.setblocking(False)
            url = f"http://127.0.0.1:{trap.getsockname()[1]}/"
            hooks = [Webhook(url, "finished").to_dict(), Webhook(url, "failed", method="POST").to_dict()]
            reading = await start(runner, "echo", "hello")
            job = Ticket(run_id or reading.run_id, 0).job_id
            if run_id:
                push(fleet, {"data": calling(EXECUTE, run_id, 0)}, job)
            for field in ("success", "failure", "stopped"):
                fleet.redis.hset(f"rq:job:{job}", f"{field}_callback_name", "os.abort")
            fleet.redis.hset(f"rq:job:{job}", "webhooks", json.dumps(hooks))
            pool = fleet.start_pool()
            child = pool.one_child()
            await reading.ended_as("completed")
            await asyncio.to_thread(until, lambda: _at_rest(fleet), 10, "an empty queue")
            assert pool.one_child().pid == child.pid
            with pytest.raises(BlockingIOError):
                trap.accept()

    play(story)


@pytest.mark.parametrize("forgery", [_a_program, _a_builtin, _pickled_data, _pickled_meta])
def test_the_same_jobs_run_code_where_rq_is_used_as_it_comes(forgery: Callable[[Path], Fields], tmp_path: Path) -> None:
    """The control: without our job class and serializer each of these is a way in."""
    canary = tmp_path / "canary"
    serializer = DefaultSerializer if "pickled" in forgery.__name__ else JSONSerializer
    with fresh_server() as server:
        fleet = Fleet(server)
        try:
            push(fleet, forgery(canary))
            job = Job.fetch(JOB, connection=fleet.redis, serializer=serializer)
            with suppress(Exception):
                job.perform()
            assert canary.exists()
        finally:
            fleet.close()


def test_whoever_reads_a_forged_job_runs_nothing(tmp_path: Path) -> None:
    """A supervisor or an API process meets the same hashes."""
    canary = tmp_path / "canary"
    with fresh_server() as server:
        fleet = Fleet(server)
        try:
            for number, forgery in enumerate(FORGERIES):
                push(fleet, forgery(canary), f"forged-{number}")
            dispatcher: Dispatcher = fleet.dispatcher
            assert dispatcher.depth() == len(FORGERIES)
            assert dispatcher.lost([Ticket("00" + "f" * 24, 0)]) == [Ticket("00" + "f" * 24, 0)]
            dispatcher.tidy(dispatcher.tidy(frozenset()))
            assert not canary.exists()
        finally:
            fleet.close()


@pytest.mark.parametrize("forgery", [_a_program, _a_builtin, _a_sibling_of_the_entry_point, _a_method])
def test_a_forged_function_is_refused_by_name(forgery: Callable[[Path], Fields], tmp_path: Path) -> None:
    with fresh_server() as server:
        fleet = Fleet(server)
        try:
            push(fleet, forgery(tmp_path / "canary"))
            job = TurnJob.fetch(JOB, connection=fleet.redis, serializer=fleet.dispatcher.queue.serializer)
            with pytest.raises(ForbiddenJob, match="restrict access to Redis"):
                _ = job.func
            assert job.success_callback is None
            assert job.failure_callback is None
            assert job.stopped_callback is None
        finally:
            fleet.close()
