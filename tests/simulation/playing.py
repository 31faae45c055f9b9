"""One scenario played in one world, with something going wrong in it, and checked.

Rules of this file: what must hold is checked while stalled processes still stand, and once more after they woke: what
they then do may change nothing of the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from runner.store.records import RunRecord
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.scenarios import ALL, Scenario, world_of
from tests.support.faults import Answered, Plan
from tests.support.simulation import Process, Worker, World
from tests.support.store import NOW_KEY
from tests.support.virtual_time import run_virtual

Check = Callable[[World, str, Scenario], Awaitable[RunRecord]]
WRITES = frozenset({"append", "memo", "snapshot", "finish", "requeue", "beat", "claim", "dispatched"})


@dataclass
class Played:
    """How it went: calls of the watched process, faults that struck it, and what it was told after it woke."""

    record: RunRecord
    calls: int
    log: list[str]
    struck: int
    after_waking: list[Answered] = field(default_factory=list)

    @property
    def attempts(self) -> int:
        return self.record.attempts


async def play(
    scenario: Scenario,
    plan: Plan | None = None,
    *,
    setting: Callable[[World, str, Worker], object] | None = None,
    check: Check = check_outcome,
) -> Played:
    """Runs a scenario to its end on a worker with that plan. `setting` may complete the plan once the run is there."""
    world = world_of(scenario)
    try:
        run_id = await world.submit(scenario.name, **scenario.submission)
        worker = world.worker(plan)
        if setting is not None:
            setting(world, run_id, worker)
        await world.settle(run_id, worker=worker)
        played = await _judged(world, run_id, scenario, worker, check)
        assert worker.refusals == []
        return played
    finally:
        await world.aclose()


async def play_recovery(scenario: Scenario, plan: Plan | None, worker_plan: Plan) -> Played:
    """Journey B: the worker is lost by its plan, and a supervisor with the other plan looks first."""
    world = world_of(scenario)
    try:
        run_id = await world.submit(scenario.name, **scenario.submission)
        await world.work_off(world.worker(worker_plan))
        supervisor = world.process("watched", plan)
        await world.settle(run_id, supervisor=supervisor)
        return await _judged(world, run_id, scenario, supervisor, check_outcome)
    finally:
        await world.aclose()


async def _judged(world: World, run_id: str, scenario: Scenario, watched: Process, check: Check) -> Played:
    record = await check(world, run_id, scenario)
    before, told = kept(world), len(watched.line.answers)
    await world.wake_all()
    assert kept(world) == before, "a process that woke changed a run that had ended"
    after = [answer for answer in watched.line.answers[told:] if answer.act in WRITES]
    await world.work_off(world.worker())
    assert kept(world) == before, "a late job changed a run that had ended"
    await check_ended(world, run_id)
    return Played(record, watched.line.calls, watched.line.log, watched.line.hits.total(), after)


def kept(world: World) -> dict[str, Any]:
    """Everything in the store that is about runs."""
    return {
        name: held
        for name, held in world.store.contents().items()
        if name != NOW_KEY and not name.endswith((":sweep", ":due"))
    }


@cache
def undisturbed(scenario_name: str) -> Played:
    """The scenario as it goes when nothing happens."""
    [scenario] = [one for one in ALL if one.name == scenario_name]
    played = run_virtual(play(scenario))
    assert not played.struck
    assert played.calls >= 3, "claim, append, finish"
    return played


def at_each_call(calls: int, what: str, one: Callable[[int], Coroutine[Any, Any, Played]]) -> list[Played]:
    """One world for each call, numbered from 1; a failure says which one."""
    results = []
    for number in range(1, calls + 1):
        try:
            results.append(run_virtual(one(number)))
        except BaseException as why:
            why.add_note(f"{what}, at call {number} of {calls}")
            raise
    return results
