"""A worker fails at every one of its calls, in every way: the run ends as if nothing had happened.

Each scenario is run once undisturbed to learn how many calls there are; then once for each call and each way to fail.
A fault strikes whichever attempt makes the call: the worker goes on with later attempts for as long as it lives.
"""

from __future__ import annotations

import pytest

from runner.store.answers import Code
from tests.simulation.playing import Played, at_each_call, play, undisturbed
from tests.simulation.scenarios import ALL, BATCHES, Scenario
from tests.support.faults import DEATHS, STALLS, Fault
from tests.support.simulation import at_call
from tests.support.virtual_time import run_virtual

DIES = (Fault.DIE_BEFORE, Fault.DIE_AFTER)
LOSES = (Fault.LOSE_REQUEST, Fault.LOSE_REPLY)


def name_of(value: object) -> str:
    return value.name.lower() if isinstance(value, Fault) else getattr(value, "name", str(value))


def each(scenario: Scenario, fault: Fault) -> list[Played]:
    calls = undisturbed(scenario.name).calls
    return at_each_call(calls, f"{scenario.name} {fault.value}", lambda number: play(scenario, at_call(number, fault)))


@pytest.mark.parametrize("fault", DIES, ids=name_of)
@pytest.mark.parametrize("scenario", ALL, ids=name_of)
def test_a_worker_dies_at_every_call(scenario: Scenario, fault: Fault) -> None:
    """I1, I2, I3, I7, I17, I20. BP-07 is among them: killed when only the start of the message was stored."""
    normal, played = undisturbed(scenario.name), each(scenario, fault)
    assert all(one.struck == 1 for one in played)
    assert any(one.attempts > normal.attempts for one in played)
    assert all(one.attempts <= normal.attempts + 1 for one in played)


@pytest.mark.parametrize("fault", LOSES, ids=name_of)
@pytest.mark.parametrize("scenario", ALL, ids=name_of)
def test_a_connection_is_lost_at_every_call(scenario: Scenario, fault: Fault) -> None:
    """I17: the call is made again and recognises itself, so a lost connection costs no attempt."""
    normal, played = undisturbed(scenario.name), each(scenario, fault)
    assert all(one.struck == 1 for one in played)
    assert {one.attempts for one in played} <= {normal.attempts}


@pytest.mark.parametrize("fault", STALLS, ids=name_of)
@pytest.mark.parametrize("scenario", ALL, ids=name_of)
def test_a_worker_stalls_at_every_call_and_wakes_when_its_run_has_ended(scenario: Scenario, fault: Fault) -> None:
    """I2, BP-10: whatever the zombie then writes is refused (that nothing changed is checked in playing it)."""
    played = each(scenario, fault)
    assert all(one.struck == 1 for one in played)
    told = [answer for one in played for answer in one.after_waking]
    assert len(told) > len(played) / 2, "most zombies try to write"
    assert {answer.code for answer in told} <= {Code.FENCED, Code.TERMINAL}


@pytest.mark.parametrize("fault", [Fault.DIE_HALFWAY, Fault.LOSE_HALFWAY], ids=name_of)
def test_a_fault_in_the_middle_of_a_trip(fault: Fault) -> None:
    """I17: of several batches in one trip the server got the first ones."""
    played = each(BATCHES, fault)
    assert sum(one.struck for one in played) > 0
    assert any(one.attempts > 1 for one in played) == (fault in DEATHS)


@pytest.mark.parametrize("fault", [*DIES, *LOSES], ids=name_of)
def test_two_faults_in_one_run(fault: Fault) -> None:
    """The second attempt fails as well, at each of its calls."""
    [scenario] = [one for one in ALL if one.name == "storyteller"]
    calls = undisturbed(scenario.name).calls

    async def twice(number: int) -> Played:
        plan = at_call(number, Fault.LOSE_REPLY)
        plan.faults[number + 2] = fault
        return await play(scenario, plan)

    played = at_each_call(calls, f"twice, then {fault.value}", twice)
    assert sum(one.struck == 2 for one in played) >= calls - 2


def test_the_same_worker_takes_its_own_run_back() -> None:
    """BP-10: the name of the process is the same in both attempts, only the epoch tells them apart."""

    async def stall(number: int) -> Played:
        return await play(ALL[0], at_call(number, Fault.STALL_BEFORE))

    assert run_virtual(stall(3)).record.epoch == 2
