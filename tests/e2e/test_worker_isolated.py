"""The worker that forks a process for each turn.

Rule of this file: the process of a turn (the horse) is a child of the worker process, which is a child of the pool.
"""

from __future__ import annotations

import asyncio

import psutil
import pytest

from runner.client import Runner
from tests.support.fleet import Fleet, Program, Reading, detail, play, start
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.e2e

COUNT = {"n": 120, "pace_ms": 15}


async def under_way(fleet: Fleet, runner: Runner) -> tuple[Program, Reading, psutil.Process, psutil.Process]:
    """A pool with one worker that runs a counter: the pool, the reader, the worker, its horse."""
    fleet.start_supervisor()
    pool = fleet.start_pool(isolate=True)
    reading = await start(runner, "counter", input=COUNT)
    await reading.until_words(5)
    worker = pool.one_child()
    (horse,) = worker.children()
    return pool, reading, worker, horse


async def listed(runner: Runner, pid: int, *, running: int) -> bool:
    """Whether the worker process is listed with that many turns."""
    return any(facts.pid == pid and facts.running == running for facts in await runner.workers())


def test_a_turn_runs_in_a_process_of_its_own() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool, reading, worker, horse = await under_way(fleet, runner)
        await until_async(lambda: listed(runner, worker.pid, running=1), what="the busy worker in the list")
        assert [(facts.pid, facts.parent_pid) for facts in fleet.workers()] == [(worker.pid, pool.pid)]
        record = await reading.counted(120)
        assert record.attempts == 1
        await asyncio.to_thread(horse.wait, 10)
        assert worker.is_running()

    play(story)


def test_a_killed_horse_is_noticed_at_once() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        _, reading, worker, horse = await under_way(fleet, runner)
        horse.kill()
        record = await reading.counted(120)
        assert (record.attempts, record.strikes) == (2, 1)
        assert await detail(runner, reading.run_id, "lost") == "signal SIGKILL"
        assert worker.is_running()

    play(story)


def test_a_horse_dies_with_its_worker() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        _, reading, worker, horse = await under_way(fleet, runner)
        worker.kill()
        await asyncio.to_thread(until, lambda: not _lives(horse), 10, "end of the orphan")
        record = await reading.counted(120)
        assert (record.attempts, record.strikes) == (2, 1)
        assert await detail(runner, reading.run_id, "lost") == "signal SIGKILL", "the pool saw it, not the lease"

    play(story, lease_ms=20_000)


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_a_planned_stop_hands_the_turn_over() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool, reading, *_ = await under_way(fleet, runner)
        pool.terminate()
        assert await asyncio.to_thread(pool.exit_code) == 0
        fleet.start_pool(isolate=True)
        record = await reading.counted(120)
        assert (record.attempts, record.strikes, record.handovers) == (2, 0, 1)

    play(story)


def test_a_job_of_no_run_does_not_end_the_worker() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(isolate=True)
        worker = pool.one_child()
        fleet.push_job("no-run-id", 0)
        fleet.push_job("00" + "f" * 24, 0)
        await (await start(runner, "echo", "still here")).ended_as("completed")
        assert pool.one_child().pid == worker.pid

    play(story)


def test_a_stop_that_comes_before_the_horse_listens_is_not_lost() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(isolate=True)
        reading = await start(runner, "counter", input={"n": 60, "pace_ms": 20})
        for _ in range(5):
            worker = await asyncio.to_thread(pool.one_child)
            await asyncio.to_thread(until, worker.children, 10, "a horse")
            worker.terminate()
            await asyncio.to_thread(worker.wait, 15)
        record = await reading.counted(60)
        assert (record.attempts, record.strikes, record.handovers) == (6, 0, 5)

    play(story)


def test_a_turn_that_burns_the_cpu_is_cancelled_with_its_process() -> None:
    """I19: it has no boundary and its loop never runs, so its process is ended, and the worker is free again."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        fleet.start_pool(isolate=True)
        reading = await start(runner, "burns")
        await reading.until_words(1)
        await runner.cancel(reading.run_id)
        await reading.ended_as("cancelled", "cancel_requested")
        assert (await (await start(runner, "echo", "free")).ended_as("completed")).attempts == 1

    play(story)
