"""A stalled worker wakes in the middle of the attempt that replaced it, for every pair of places.

Both write the same text at the same seqs, so only the epoch tells a zombie's chunk from its successor's: an entry
of the older epoch behind one of the newer would show that one was let in (I2).
"""

from __future__ import annotations

import pytest

from runner.store.answers import Code
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.playing import WRITES, undisturbed
from tests.simulation.scenarios import BATCHES, COUNTER, CUT, STEPS, STORYTELLER, Scenario, world_of
from tests.support.faults import Answered, Fault
from tests.support.simulation import at_call, hook_at
from tests.support.virtual_time import run_virtual


async def haunted(scenario: Scenario, stalls_at: int, fault: Fault, wakes_at: int) -> list[Answered]:
    """What the zombie was told of its writes, when it woke just before call `wakes_at` of its successor."""
    world = world_of(scenario)
    try:
        run_id = await world.submit(scenario.name, **scenario.submission)
        zombie = world.worker(at_call(stalls_at, fault))
        await world.work_off(zombie)
        if not zombie.lost:
            return []
        told: list[int] = []

        async def wake() -> None:
            told.append(len(zombie.line.answers))
            await world.wake_all()

        await world.settle(run_id, worker=world.worker(hook_at(wakes_at, wake)))
        await wake()
        await check_ended(world, run_id)
        if scenario.steps == ():
            await check_outcome(world, run_id, scenario)
        return [answer for answer in zombie.line.answers[told[0] :] if answer.act in WRITES]
    finally:
        await world.aclose()


@pytest.mark.parametrize("fault", [Fault.STALL_BEFORE, Fault.STALL_AFTER], ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("scenario", [COUNTER, STEPS, STORYTELLER, BATCHES, CUT], ids=lambda scenario: scenario.name)
def test_a_zombie_that_wakes_under_its_successor_writes_nothing(scenario: Scenario, fault: Fault) -> None:
    calls, told = undisturbed(scenario.name).calls, []
    for stalls_at in range(2, calls):
        for wakes_at in range(1, calls + 1, 1 if scenario is COUNTER else 3):
            try:
                told += run_virtual(haunted(scenario, stalls_at, fault, wakes_at))
            except BaseException as why:
                why.add_note(f"{scenario.name}: it {fault.value} at call {stalls_at}, and wakes at call {wakes_at}")
                raise
    assert len(told) > calls
    assert {answer.code for answer in told} <= {Code.FENCED, Code.TERMINAL}


def test_a_zombie_claims_nothing_either() -> None:
    """It stalled before its claim: the run was enqueued again and is being run by another one."""

    async def program() -> None:
        told = await haunted(COUNTER, 1, Fault.STALL_BEFORE, 4)
        assert [(answer.act, answer.code) for answer in told] == [("claim", Code.FENCED)]

    run_virtual(program())
