"""Budgets: what gives a run up, after exactly how much, and what never does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from runner.core.run import Reason, State
from runner.store import reads
from runner.store.records import RunRecord
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.scenarios import COUNTER, STEPS, world_of
from tests.support.faults import Fault
from tests.support.simulation import STEP_MS, Worker, World, at_call
from tests.support.virtual_time import pass_ms, run_virtual

OFF: dict[str, Any] = {"no_progress_ms": None, "attempts": None, "lost_workers": None}


def in_world(program: Callable[[World], Any], **settings: Any) -> Any:
    async def main() -> Any:
        world = world_of(None, **settings)
        try:
            return await program(world)
        finally:
            await world.aclose()

    return run_virtual(main())


def executions(world: World, run_id: str) -> int:
    events = world.store.run(reads.read_events(world.keys.of_run(run_id)))
    return [event["what"] for event in events].count("claimed")


def sealed(record: RunRecord, reason: Reason) -> None:
    assert (record.state, record.reason) == (State.SEALED, reason)


@pytest.mark.parametrize("cap", [0, 1, 3])
@pytest.mark.parametrize("dies_at", [2, 4])
def test_a_turn_that_kills_its_worker_is_run_exactly_as_often_as_the_cap_says(cap: int, dies_at: int) -> None:
    """BP-06: killed at the same call every time, before its first chunk or after some."""

    async def program(world: World) -> None:
        budgets = {"lost_workers": cap}
        run_id = await world.submit("steps", budgets=budgets, **STEPS.submission)
        await world.settle(run_id, hire=lambda: world.worker(at_call(dies_at, Fault.DIE_BEFORE)))
        record = await check_ended(world, run_id)
        sealed(record, Reason.LOST_WORKERS)
        assert executions(world, run_id) == max(cap, 1)

    in_world(program)


def test_a_cancel_between_two_deliveries_wins_before_the_next_execution() -> None:
    """BP-06, I19: the job of the next attempt is in the queue when the cancel comes."""

    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        await world.work_off(world.worker(at_call(3, Fault.DIE_BEFORE)))
        await world.watch(lambda: world.record(run_id).dispatch == "sent" and world.record(run_id).strikes == 1)
        answer = await world.process("caller").cancel(run_id)
        assert answer is not None
        assert (answer.landed, answer.state) == (True, "queued")
        assert world.ended(run_id), "nobody has to hear of it first"
        late = world.worker()
        assert await world.work_off(late) == 1
        assert late.line.log == ["claim"]
        assert (await check_ended(world, run_id)).state is State.CANCELLED
        assert executions(world, run_id) == 1

    in_world(program)


@pytest.mark.parametrize(("agent", "runs"), [("always-cut", 4), ("always-cut-anew", 4)])
def test_attempts_without_new_content_are_bounded(agent: str, runs: int) -> None:
    """I7: what is only given out again is no progress, so the first try and three more are all there is."""

    async def program(world: World) -> None:
        run_id = await world.submit(agent, message="a story", budgets={**OFF, "attempts": 3})
        await world.settle(run_id, rounds=200)
        record = await check_ended(world, run_id)
        sealed(record, Reason.ATTEMPTS)
        assert record.strikes == 0, "a provider that breaks off is no lost worker"
        assert executions(world, run_id) == runs

    in_world(program)


async def silent_run(world: World, **budgets: Any) -> tuple[str, Worker, asyncio.Task[object]]:
    """A live run that has said one word and says nothing more."""
    run_id = await world.submit("quiet", budgets={**OFF, **budgets})
    worker = world.worker()
    working: asyncio.Task[object] = asyncio.create_task(world.work_off(worker))
    await world.watch(lambda: world.record(run_id).progress > 0)
    return run_id, worker, working


def test_a_silent_run_is_given_up_after_one_window_and_its_worker_stops() -> None:
    """I10: a heartbeat is no progress."""

    async def program(world: World) -> None:
        run_id, worker, working = await silent_run(world, no_progress_ms=3_000)
        since = world.record(run_id).progress_at
        await world.watch(lambda: world.ended(run_id))
        await working
        assert len(worker.runtime.hosted) == 0
        record = await check_ended(world, run_id)
        sealed(record, Reason.NO_PROGRESS)
        assert 3_000 < record.ended_at - since <= 3_000 + 2 * STEP_MS
        assert executions(world, run_id) == 1

    in_world(program)


def test_a_new_attempt_gets_no_new_window() -> None:
    """I10: its worker dies every second, and every attempt is as silent as the one before."""

    async def program(world: World) -> None:
        run_id, worker, working = await silent_run(world, no_progress_ms=3_000)
        since = world.record(run_id).progress_at
        for lost in range(1, 7):
            if world.ended(run_id):
                break
            until_ms = since + lost * 1_000
            await world.watch(lambda: world.now_ms >= until_ms or world.ended(run_id))  # noqa: B023 - called at once
            worker.line.die()
            await working
            await world.watch(lambda: world.record(run_id).state is not State.RUNNING)
            worker = world.worker()
            working = asyncio.create_task(world.work_off(worker))
        await working
        record = await check_ended(world, run_id)
        sealed(record, Reason.NO_PROGRESS)
        assert record.ended_at - since <= 6_000, "three seconds of silence, and the waits in the queue between"
        assert 1 < executions(world, run_id) <= 4

    in_world(program)


def test_none_is_off() -> None:
    async def program(world: World) -> None:
        run_id, _, working = await silent_run(world)
        for _ in range(50):
            await world.watch(_never_at_once(), step_ms=60_000)
        assert world.record(run_id).state is State.RUNNING
        assert await world.process("caller").cancel(run_id) is not None
        await working
        assert (await check_ended(world, run_id)).state is State.CANCELLED

    in_world(program, lease_ms=200_000, beat_ms=50_000, sweep_ms=60_000)


def _never_at_once() -> Callable[[], bool]:
    """True the second time it is asked."""
    asked: list[bool] = []

    def ask() -> bool:
        asked.append(True)
        return len(asked) > 1

    return ask


def test_lost_workers_can_be_off() -> None:
    async def program(world: World) -> None:
        run_id = await world.submit("steps", budgets=OFF, **STEPS.submission)
        lost: list[Worker] = []

        def hire() -> Worker:
            lost.append(world.worker(at_call(2, Fault.DIE_BEFORE) if len(lost) < 12 else None))
            return lost[-1]

        await world.settle(run_id, hire=hire)
        assert (await check_outcome(world, run_id, STEPS)).attempts == 13

    in_world(program)


def test_hand_overs_count_against_nothing() -> None:
    """D13: twenty planned stops in a row, under the tightest budgets."""

    async def program(world: World) -> None:
        tight = {"no_progress_ms": 60_000, "attempts": 1, "lost_workers": 1}
        run_id = await world.submit("quiet", budgets=tight)
        for _ in range(20):
            worker = world.worker()
            working = asyncio.create_task(world.work_off(worker))
            await world.watch(lambda: world.record(run_id).state is State.RUNNING)
            await worker.told_to_stop()
            await working
            assert world.record(run_id).state is State.QUEUED
        record = world.record(run_id)
        assert (record.handovers, record.strikes, record.attempt) == (20, 0, 1)
        assert executions(world, run_id) == 20
        assert await world.process("caller").cancel(run_id) is not None
        await check_ended(world, run_id)

    in_world(program)


def test_an_outage_of_the_server_gives_a_fresh_window_and_costs_no_attempt() -> None:
    """I22: nobody is judged on timestamps that could not be written."""

    async def program(world: World) -> None:
        run_id, _, working = await silent_run(world, no_progress_ms=3_000)
        await world.watch(_never_at_once())
        world.away = True
        await pass_ms(60_000)
        world.away = False
        back = world.now_ms
        await world.watch(lambda: world.ended(run_id))
        await working
        record = await check_ended(world, run_id)
        sealed(record, Reason.NO_PROGRESS)
        assert record.ended_at - back > 3_000
        assert executions(world, run_id) == 1, "its lease is judged from the return on, too"

    in_world(program)


def test_a_run_goes_on_after_an_outage_as_if_nothing_had_been() -> None:
    async def program(world: World) -> None:
        run_id = await world.submit("counter", input={"n": 4, "pace_ms": 600}, budgets={"no_progress_ms": 2_000})
        working = asyncio.create_task(world.work_off(world.worker()))
        await world.watch(lambda: world.record(run_id).progress > 2)
        world.away = True
        await pass_ms(30_000)
        world.away = False
        await world.watch(lambda: world.ended(run_id))
        await working
        assert (await check_outcome(world, run_id, COUNTER)).attempts == 1

    in_world(program)


def test_waiting_in_a_queue_is_no_silence() -> None:
    """I8, I21: nobody takes it for a week, and then it has its whole window."""

    async def program(world: World) -> None:
        tight = {"no_progress_ms": 1_000, "attempts": 1, "lost_workers": 1}
        run_id = await world.submit("counter", input={"n": 4, "pace_ms": 600}, budgets=tight)
        week_over_ms = world.now_ms + 7 * 86_400_000
        for _ in range(14):
            for _ in range(20):
                await world.watch(_never_at_once(), step_ms=150_000)  # looked at, without a gap
            await pass_ms(12 * 3_600_000)
        assert world.now_ms > week_over_ms
        assert world.record(run_id).state is State.QUEUED
        working = asyncio.create_task(world.work_off(world.worker()))
        await world.watch(lambda: world.ended(run_id))
        await working
        assert (await check_outcome(world, run_id, COUNTER)).attempts == 1

    in_world(program, sweep_ms=60_000, lease_ms=10_000, beat_ms=1_000)
