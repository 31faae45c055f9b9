"""Kill anything, any time: the answer arrives once, whole, in order.

Rules of this file: real processes, real signals; a reader follows every run from its first chunk, and checks all of it.
"""

from __future__ import annotations

import asyncio
import signal

import psutil
import pytest

from runner.client import Runner
from tests.support.fleet import SHORT_LEASE, Fleet, Program, Reading, detail, play, start, whats
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

LONG = {"n": 120, "pace_ms": 15}


async def owner_of(fleet: Fleet, reading: Reading) -> psutil.Process:
    return fleet.owner(await reading.record())


async def logged(program: Program, event: str) -> None:
    await asyncio.to_thread(until, lambda: program.logged(event), 10, event)


async def started(runner: Runner, count: int, counting: dict[str, int]) -> list[Reading]:
    """Readers of that many counters, each of which has begun."""
    readings = [await start(runner, "counter", input=counting) for _ in range(count)]
    for reading in readings:
        await reading.until_words(3)
    return readings


def test_a_killed_process_costs_one_attempt_and_nothing_else() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        fleet.start_pool(2)
        reading = await start(runner, "counter", input=LONG)
        await reading.until_words(10)
        (await owner_of(fleet, reading)).kill()
        record = await reading.counted(120)
        assert (record.attempts, record.strikes, record.handovers) == (2, 1, 0)
        assert await whats(runner, reading.run_id) == [
            "created",
            "claimed",
            "owner-gone",
            "lost",
            "claimed",
            "completed",
        ]
        assert await detail(runner, reading.run_id, "lost") == "signal SIGKILL"

    play(story)


def test_processes_whose_parent_was_killed_hand_over_and_leave() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        pool = fleet.start_pool(2)
        readings = await started(runner, 6, LONG)
        pool.process.kill()
        successor = fleet.start_pool(1)
        for reading in readings:
            record = await reading.counted(120)
            assert (record.attempts, record.strikes, record.handovers) == (2, 0, 1)
        until(lambda: len(fleet.processes()) == 3, what="supervisor, parent and its one process: no orphan")
        assert [facts.parent_pid for facts in fleet.workers()] == [successor.pid]

    play(story)


def test_a_lost_host_is_noticed_at_the_end_of_the_lease() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        pool = fleet.start_pool()
        reading = await start(runner, "counter", input=LONG)
        await reading.until_words(10)
        pool.kill_all()
        fleet.start_pool()
        record = await reading.counted(120)
        assert (record.attempts, record.strikes) == (2, 1)
        assert await detail(runner, reading.run_id, "lost") == "lease expired"

    play(story, **SHORT_LEASE)


def test_a_process_that_wakes_after_its_lease_writes_nothing_and_serves_on() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        pool = fleet.start_pool()
        reading = await start(runner, "counter", input={"n": 250, "pace_ms": 20})
        await reading.until_words(10)
        zombie = await owner_of(fleet, reading)
        zombie.suspend()
        successor = fleet.start_pool()
        await reading.until_words(len(reading.text.split()) + 5)
        zombie.resume()
        await logged(pool, "attempt.lost")
        record = await reading.counted(250)
        assert (record.attempts, record.strikes) == (2, 1)
        successor.terminate()
        assert await asyncio.to_thread(successor.exit_code) == 0
        await (await start(runner, "echo", "still here")).ended_as("completed")
        assert pool.one_child().pid == zombie.pid

    play(story, **SHORT_LEASE)


def test_a_zombie_that_wakes_after_the_end_changes_nothing() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        pool = fleet.start_pool()
        reading = await start(runner, "counter", input=LONG)
        await reading.until_words(10)
        pool.one_child().suspend()
        fleet.start_pool()
        record = await reading.counted(120)
        pool.one_child().resume()
        await logged(pool, "attempt.lost")
        assert await reading.record() == record

    play(story, **SHORT_LEASE)


def test_a_planned_stop_hands_fifty_turns_over() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        pool = fleet.start_pool()
        readings = [await start(runner, "counter", input={"n": 300, "pace_ms": 12}) for _ in range(50)]
        for reading in readings:
            await reading.until_words(1)
        pool.terminate()
        fleet.start_pool()
        assert await asyncio.to_thread(pool.exit_code) == 0
        for reading in readings:
            record = await reading.counted(300, seconds=60)
            assert (record.attempts, record.strikes, record.handovers) == (2, 0, 1)

    play(story)


def test_a_second_signal_changes_nothing() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        pool = fleet.start_pool()
        child = pool.one_child()
        readings = await started(runner, 5, LONG)
        for _ in range(3):
            pool.terminate()
            child.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(pool.exit_code) == 0
        fleet.start_pool()
        for reading in readings:
            record = await reading.counted(120)
            assert (record.attempts, record.strikes, record.handovers) == (2, 0, 1)

    play(story)


def test_a_killed_server_loses_nothing_it_acknowledged_and_judges_nobody() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        fleet.start_pool()
        readings = await started(runner, 3, {"n": 150, "pace_ms": 20})
        fleet.server.kill()
        fleet.server.restart()
        for reading in readings:
            record = await reading.counted(150)
            assert (record.strikes, record.handovers) == (0, 0), await runner.explain(reading.run_id)
        await (await start(runner, "echo", "still here")).ended_as("completed")

    play(story, **SHORT_LEASE)


def test_two_supervisors_make_one_attempt_of_each_loss() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor(sweep_ms=20)
        fleet.start_supervisor(sweep_ms=20)
        pool = fleet.start_pool()
        readings = await started(runner, 8, LONG)
        for word in (20, 40):
            for reading in readings:
                await reading.until_words(word)
            pool.one_child().kill()
        for reading in readings:
            record = await reading.counted(120)
            assert (record.attempts, record.strikes) == (3, 2)
            assert (await whats(runner, reading.run_id)).count("lost") == 2

    play(story)


def test_a_turn_that_kills_its_workers_is_given_up() -> None:
    """BP-06: every way back to the queue goes through the same accounting."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        fleet.start_pool(2)
        reading = await start(runner, "poison", budgets={"lost_workers": 3})
        record = await reading.ended_as("sealed", "interrupted_attempts_exceeded")
        assert reading.text == "attempt1 attempt2 attempt3 "
        assert record.attempts == 3
        await (await start(runner, "echo", "still here")).ended_as("completed")

    play(story)
