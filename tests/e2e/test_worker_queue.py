"""What RQ loses, doubles and sweeps away: the run comes to its one end all the same.

Rules of this file: the queue is hurt through Redis, as a crash or a stranger would; the record decides what happened.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rq.registry import StartedJobRegistry
from rq.suspension import resume, suspend

from runner.client import Runner
from runner.dispatch import Ticket
from runner.store.records import RunRecord
from tests.support.fleet import Fleet, play, start, whats
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.e2e

QUEUE, STRANDED, STARTED = "rq:queue:turns", "rq:queue:turns:intermediate", "rq:wip:turns"
COUNT = {"n": 80, "pace_ms": 15}


def job_id(record: RunRecord) -> str:
    return Ticket(record.run_id, record.epoch).job_id


@pytest.mark.parametrize("isolate", [False, True])
def test_a_stop_right_after_an_enqueue_strands_nothing(isolate: bool) -> None:
    """No supervisor runs: whatever was stranded would stay so."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(isolate=isolate)
        readings = []
        for pings in range(10 if isolate else 20):
            child = await asyncio.to_thread(pool.one_child)
            await asyncio.to_thread(until, fleet.pops, 10, "a worker that waits for a job")
            readings.append(await start(runner, "counter", input={"n": 5, "pace_ms": 2}))
            for _ in range(pings):
                fleet.redis.ping()
            child.terminate()
            await asyncio.to_thread(child.wait, 15)
        for reading in readings:
            record = await reading.counted(5)
            assert record.strikes == 0
        assert fleet.redis.llen(STRANDED) == 0

    play(story)


def _from_list(fleet: Fleet, job: str) -> None:
    assert fleet.redis.lrem(QUEUE, 0, job) == 1


def _into_intermediate(fleet: Fleet, job: str) -> None:
    assert fleet.redis.lmove(QUEUE, STRANDED) == job.encode()


def _its_hash(fleet: Fleet, job: str) -> None:
    assert fleet.redis.delete(f"rq:job:{job}") == 1


def _everything_of_rq(fleet: Fleet, job: str) -> None:
    names: Any = fleet.redis.keys("rq:*")
    assert fleet.redis.delete(*names)


@pytest.mark.parametrize("lose", [_from_list, _into_intermediate, _its_hash, _everything_of_rq])
def test_a_job_that_rq_lost_is_enqueued_again_and_runs_once(lose: Callable[[Fleet, str], None]) -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        reading = await start(runner, "counter", input={"n": 5, "pace_ms": 1})
        lose(fleet, job_id(await reading.record()))
        fleet.start_supervisor()
        fleet.start_pool()
        record = await reading.counted(5)
        assert (record.attempts, record.strikes) == (1, 0)

    play(story, queue_check_ms=300)


def test_a_broker_that_forgot_everything_while_turns_ran_is_no_matter() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        fleet.start_pool()
        reading = await start(runner, "counter", input=COUNT)
        await reading.until_words(5)
        _everything_of_rq(fleet, "")
        record = await reading.counted(80)
        assert (record.attempts, record.strikes) == (1, 0)
        await (await start(runner, "echo", "still here")).ended_as("completed")

    play(story)


def test_duplicate_jobs_run_the_body_once() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        book = fleet.dir / "book"
        reading = await start(runner, "noted", input=str(book))
        job = job_id(await reading.record())
        fleet.redis.rpush(QUEUE, job, job)
        fleet.start_pool(2)
        await reading.until_words(1)
        fleet.push_job(reading.run_id, 0)
        fleet.push_job(reading.run_id, 1)
        await until_async(lambda: _none_waits(fleet), 10, "end of the duplicates")
        book.with_suffix(".go").touch()
        record = await reading.ended_as("completed")
        fleet.push_job(reading.run_id, 1)
        await until_async(lambda: _none_waits(fleet), 10, "end of the late duplicate")
        assert record.attempts == 1
        assert book.read_text() == f"{reading.run_id}\n"
        assert await whats(runner, reading.run_id) == ["created", "claimed", "completed"]

    play(story)


async def _none_waits(fleet: Fleet) -> bool:
    return fleet.redis.llen(QUEUE) == 0 and fleet.redis.llen(STRANDED) == 0


def test_strangers_that_clean_up_neither_double_nor_fail_a_run() -> None:
    """BP-12: RQ's registries decide nothing, even when they hold the execution for lost."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        fleet.start_pool()
        reading = await start(runner, "counter", input=COUNT)
        await reading.until_words(5)
        for member, _ in _executions(fleet):
            fleet.redis.zadd(STARTED, {member: 1})
        await asyncio.to_thread(_rq, fleet, "info")
        for _ in range(2):
            StartedJobRegistry("turns", connection=fleet.redis).cleanup()
        record = await reading.counted(80)
        assert (record.attempts, record.strikes, record.dispatches) == (1, 0, 1)

    play(story)


def _executions(fleet: Fleet) -> list[tuple[bytes, float]]:
    held: Any = fleet.redis.zrange(STARTED, 0, -1, withscores=True)
    assert held
    return [(member, score) for member, score in held]


def _rq(fleet: Fleet, *words: str) -> str:
    program = Path(sys.executable).with_name("rq")
    done = subprocess.run(
        [program, *words, "--url", fleet.server.url], check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout


def test_a_suspended_worker_ends_its_turns_and_takes_no_more() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool()
        running = await start(runner, "counter", input=COUNT)
        await running.until_words(3)
        suspend(fleet.redis)
        await asyncio.to_thread(until, lambda: _states(fleet) == ["suspended"], 10, "suspended worker")
        waiting = await start(runner, "counter", input={"n": 3, "pace_ms": 1})
        await running.counted(80)
        assert (await waiting.record()).state == "queued"
        resume(fleet.redis)
        await waiting.counted(3)

    play(story)


def test_a_suspended_worker_stops_when_it_is_told_to() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool()
        running = await start(runner, "waits")
        await running.until_words(1)
        suspend(fleet.redis)
        await asyncio.to_thread(until, lambda: _states(fleet) == ["suspended"], 10, "suspended worker")
        pool.terminate()
        assert await asyncio.to_thread(pool.exit_code) == 0
        assert (await running.record()).handovers == 1

    play(story)


def _states(fleet: Fleet) -> list[str]:
    return [worker.get_state() for worker in fleet.in_rq()]


def test_executions_that_lost_workers_left_in_rq_are_cleared_away() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool()
        reading = await start(runner, "waits")
        await reading.until_words(1)
        job = job_id((await reading.record()).model_copy(update={"epoch": 0}))
        pool.kill_all()
        for member, _ in _executions(fleet):
            fleet.redis.zadd(STARTED, {member: 1})
        fleet.start_supervisor()
        await asyncio.to_thread(until, lambda: fleet.redis.zcard(STARTED) == 0, 10, "tidy registry")
        assert fleet.redis.exists(f"rq:job:{job}") == 0
        await runner.cancel(reading.run_id)
        await reading.ended_as("cancelled", "cancel_requested")

    play(story, lease_ms=1_500, beat_ms=300)


def test_a_queue_is_one_queue() -> None:
    """A worker of several queues loses what it popped when it dies (RQ falls back to BLPOP)."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(ready=False, queue="turns,more")
        assert await asyncio.to_thread(pool.exit_code) != 0
        assert "InvalidInput" in pool.log.read_text()

    play(story)
