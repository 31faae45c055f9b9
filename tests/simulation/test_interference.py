"""Somebody interferes at every call of a worker: a cancel, a planned stop, a second delivery of the same job."""

from __future__ import annotations

import asyncio

import pytest

from runner.core.run import Reason, State
from runner.dispatch import Ticket
from runner.store import reads
from runner.store.answers import Code
from runner.store.records import RunRecord
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.playing import Played, at_each_call, play, undisturbed
from tests.simulation.scenarios import ALL, ANEW, COUNTER, CUT, STEPS, STORYTELLER, Scenario, world_of
from tests.support.faults import Fault
from tests.support.simulation import Worker, World, hook_at
from tests.support.virtual_time import run_virtual


def name_of(value: object) -> str:
    return value.name.lower() if isinstance(value, Fault) else getattr(value, "name", str(value))


async def check_cancelled(world: World, run_id: str, scenario: Scenario) -> RunRecord:
    """I19: it ended as cancelled, with the beginning of its answer."""
    record = await check_ended(world, run_id)
    assert (record.state, record.reason) == (State.CANCELLED, Reason.CANCEL_REQUESTED)
    entries = world.store.entries(world.keys.of_run(run_id))
    chunks = [chunk for entry in entries for chunk in entry.chunks]
    assert chunks[-1] == {"type": "abort"}
    begun = max((at for at, chunk in enumerate(chunks) if chunk["type"] == "reset-step"), default=0)
    assert scenario.text.startswith("".join(chunk.get("delta", "") for chunk in chunks[begun:]))
    return record


async def cancelled_at(scenario: Scenario, number: int, fault: Fault | None = None) -> Played:
    def setting(world: World, run_id: str, worker: Worker) -> None:
        async def cancel() -> None:
            answer = await world.process("caller").cancel(run_id)
            assert answer is not None
            assert answer.landed

        worker.line.plan.hooks[number] = cancel
        if fault is not None:
            worker.line.plan.faults[number] = fault

    return await play(scenario, setting=setting, check=check_cancelled)


@pytest.mark.parametrize("scenario", [one for one in ALL if one.reasoning is None], ids=name_of)
def test_a_cancel_at_every_call_wins(scenario: Scenario) -> None:
    normal = undisturbed(scenario.name)
    played = at_each_call(normal.calls, "cancelled", lambda number: cancelled_at(scenario, number))
    assert all(one.attempts <= normal.attempts for one in played)
    assert {one.attempts for one in played} >= {0, 1}, "cancelled before its claim, and after it"


async def cancelled_alone(scenario: Scenario, number: int) -> bool:
    """The same with nobody but the worker of the first attempt: whether the cancel came during that attempt."""
    world = world_of(scenario)
    try:
        run_id = await world.submit(scenario.name, **scenario.submission)
        cancels: list[object] = []

        async def cancel() -> None:
            cancels.append(await world.process("caller").cancel(run_id))

        await world.work_off(world.worker(hook_at(number, cancel)))
        if cancels:
            await check_cancelled(world, run_id, scenario)
        return bool(cancels)
    finally:
        await world.aclose()


@pytest.mark.parametrize("scenario", [COUNTER, CUT, ANEW], ids=name_of)
def test_a_worker_that_lives_ends_a_cancelled_run_by_itself(scenario: Scenario) -> None:
    """I19: no supervisor has to look, also when the model broke off at that very moment."""
    calls = undisturbed(scenario.name).calls
    assert sum(run_virtual(cancelled_alone(scenario, number)) for number in range(1, calls + 1)) >= 7


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.LOSE_REPLY, Fault.STALL_AFTER], ids=name_of)
@pytest.mark.parametrize("scenario", [COUNTER, STEPS], ids=name_of)
def test_a_cancelled_run_whose_worker_fails_is_not_run_again(scenario: Scenario, fault: Fault) -> None:
    """BP-35: what was cancelled is never put back to run again, whoever dies with the cancel pending."""
    calls = undisturbed(scenario.name).calls
    played = at_each_call(
        calls, f"cancelled, and it {fault.value}", lambda number: cancelled_at(scenario, number, fault)
    )
    assert all(one.attempts <= 1 for one in played)
    assert sum(one.struck for one in played) == calls


async def handed_over_at(scenario: Scenario, number: int) -> tuple[Played, int]:
    stops: list[asyncio.Task[None]] = []
    kinds: list[str] = []

    def setting(world: World, run_id: str, worker: Worker) -> None:
        async def stop() -> None:
            stops.append(worker.told_to_stop())
            await asyncio.sleep(0)

        worker.line.plan.hooks[number] = stop

    async def check(world: World, run_id: str, scenario: Scenario) -> RunRecord:
        await asyncio.gather(*stops)
        events = world.store.run(reads.read_events(world.keys.of_run(run_id)))
        kinds.extend(event["what"] for event in events)
        return await check_outcome(world, run_id, scenario)

    played = await play(scenario, setting=setting, check=check)
    return played, kinds.count("handed-over")


@pytest.mark.parametrize("scenario", ALL, ids=name_of)
def test_a_planned_stop_at_every_call_is_a_hand_over(scenario: Scenario) -> None:
    """D13: it counts against no budget, and the next worker goes on where this one stopped."""
    normal, hand_overs = undisturbed(scenario.name), []

    async def one(number: int) -> Played:
        played, count = await handed_over_at(scenario, number)
        hand_overs.append(count)
        assert played.record.handovers == count
        assert played.record.strikes == 0, "a planned stop is no loss"
        assert played.attempts == normal.attempts + count
        return played

    at_each_call(normal.calls, "told to stop", one)
    assert set(hand_overs) <= {0, 1}
    assert sum(hand_overs) >= 1


async def delivered_twice_at(scenario: Scenario, number: int) -> tuple[Played, list[Worker]]:
    seconds: list[Worker] = []

    def setting(world: World, run_id: str, worker: Worker) -> None:
        async def deliver() -> None:
            seconds.append(world.worker())
            await seconds[0].execute(Ticket(run_id, 0))

        worker.line.plan.hooks[number] = deliver

    return await play(scenario, setting=setting), seconds


@pytest.mark.parametrize("scenario", [COUNTER, STEPS, STORYTELLER, ANEW], ids=name_of)
def test_a_second_delivery_at_every_call_is_no_second_execution(scenario: Scenario) -> None:
    """BP-11: one claim wins; the other delivery changes nothing and asks for nothing more."""
    normal, bounced = undisturbed(scenario.name), 0

    async def one(number: int) -> Played:
        nonlocal bounced
        played, [second] = await delivered_twice_at(scenario, number)
        assert played.attempts == normal.attempts
        if number > 1:
            told = [(answer.act, answer.code) for answer in second.line.answers]
            assert told == [("claim", Code.FENCED)]
            bounced += 1
        return played

    at_each_call(normal.calls, "delivered again", one)
    assert bounced == normal.calls - 1


def test_a_delivery_that_comes_first_takes_the_run_from_the_other() -> None:
    played, [second] = run_virtual(delivered_twice_at(COUNTER, 1))
    assert played.log == ["claim"], "the first one found it claimed and ended"
    assert second.line.calls == undisturbed(COUNTER.name).calls
