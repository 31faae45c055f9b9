"""Supervisors and callers fail at every one of their calls, while a worker is lost as well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runner.engine.submit import Submitted
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.playing import Played, at_each_call, kept, play_recovery
from tests.simulation.scenarios import COUNTER, STEPS, STORYTELLER, Scenario, world_of
from tests.support.faults import DEATHS, Fault, Plan
from tests.support.simulation import at_call
from tests.support.virtual_time import run_virtual

WHOLE = (
    Fault.DIE_BEFORE,
    Fault.DIE_AFTER,
    Fault.LOSE_REQUEST,
    Fault.LOSE_REPLY,
    Fault.STALL_BEFORE,
    Fault.STALL_AFTER,
)
WORKER_DIES_AT = 4


def name_of(value: object) -> str:
    return value.name.lower() if isinstance(value, Fault) else getattr(value, "name", str(value))


def recovery(scenario: Scenario, plan: Plan | None = None) -> Callable[[], Played]:
    return lambda: run_virtual(play_recovery(scenario, plan, at_call(WORKER_DIES_AT, Fault.DIE_AFTER)))


@pytest.mark.parametrize("fault", [*WHOLE, Fault.DIE_HALFWAY, Fault.LOSE_HALFWAY], ids=name_of)
@pytest.mark.parametrize("scenario", [COUNTER, STEPS, STORYTELLER], ids=name_of)
def test_a_supervisor_fails_at_every_call_of_a_recovery(scenario: Scenario, fault: Fault) -> None:
    """D11: another one finishes what it began, and a second one does nothing twice."""
    normal = recovery(scenario)()
    assert normal.attempts == 2
    assert {"take_due", "HGETALL", "requeue", "enqueue", "dispatched"} <= set(normal.log)

    async def one(number: int) -> Played:
        return await play_recovery(scenario, at_call(number, fault), at_call(WORKER_DIES_AT, Fault.DIE_AFTER))

    played = at_each_call(normal.calls, f"supervisor {fault.value}", one)
    assert all(result.attempts == 2 for result in played), "one loss, one new attempt"
    assert all(result.record.strikes == 1 for result in played)
    assert sum(result.struck for result in played) >= (1 if "HALFWAY" in fault.name else normal.calls - 1)


async def submitted(fault: Fault | None, number: int, *, again: bool) -> tuple[int, int]:
    """A caller submits, failing at that call; with `again` it comes back with the same key. (runs, calls)."""
    world = world_of(COUNTER)
    try:
        caller = world.process("caller", at_call(number, fault) if fault else None)
        answers: list[Submitted | None] = []

        async def ask() -> None:
            answers.append(await caller.submit("counter", idempotency_key="key-1", **COUNTER.submission))

        await world.as_long_as_it_moves(caller, ask())
        if again:
            second = await world.process("caller").submit("counter", idempotency_key="key-1", **COUNTER.submission)
            assert second is not None
            assert second.run_id == world.run_ids[0]
        await world.settle(*world.run_ids)
        for run_id in world.run_ids:
            assert (await check_outcome(world, run_id, COUNTER)).attempts == 1
        before = kept(world)
        await world.wake_all()
        await world.work_off(world.worker())
        await _check_late_caller(world.run_ids, answers, caller.line.dead)
        if fault is not Fault.STALL_BEFORE or number > 1:
            assert kept(world) == before
        await world.settle(*world.run_ids)
        for run_id in world.run_ids:
            await check_ended(world, run_id)
        return len(world.run_ids), caller.line.calls
    finally:
        await world.aclose()


async def _check_late_caller(run_ids: list[str], answers: list[Submitted | None], died: bool) -> None:
    """Whoever lived to hear an answer was told the one run there is."""
    if died:
        assert answers == [None]
    else:
        assert [answer.run_id for answer in answers if answer] == run_ids


def test_a_submit_has_three_calls() -> None:
    assert run_virtual(submitted(None, 0, again=False)) == (1, 3)


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("fault", WHOLE, ids=name_of)
def test_a_caller_fails_at_every_call_of_a_submit(fault: Fault, number: int, again: bool) -> None:
    """D8, BP-15: a record without a job is enqueued; a late job of its own causes no second execution."""
    runs, _ = run_virtual(submitted(fault, number, again=again))
    never_recorded = fault is Fault.DIE_BEFORE and number == 1 and not again
    assert runs == (0 if never_recorded else 1)


def test_dying_ways_are_all_there() -> None:
    assert set(DEATHS) == {Fault.DIE_BEFORE, Fault.DIE_HALFWAY, Fault.DIE_AFTER}
