"""A server that forgets its last moment (a restart without its newest writes): the run goes on from what is left."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.run import Reason, State
from runner.core.transcript.reducer import fold_all
from tests.simulation.invariants import check_i1_one_terminal_and_it_is_last, check_i2_i17_seqs_and_epochs
from tests.simulation.playing import undisturbed
from tests.simulation.scenarios import ANEW, COUNTER, STORYTELLER, Scenario, world_of
from tests.support.simulation import Worker, World, hook_at
from tests.support.virtual_time import run_virtual


def forget_the_last_entry(world: World, run_id: str) -> bool:
    """As if the server had come back without the last append. False when there is none."""
    run = world.keys.of_run(run_id)
    entries = world.store.entries(run)
    if not entries or world.ended(run_id):
        return False
    world.store.client.xdel(run.stream, world.store.entry_ids(run)[-1])
    world.store.client.hset(run.run, "seq", entries[-2].last_seq if len(entries) > 1 else 0)
    # The id of a removed entry stays taken, unlike that of one that was never written.
    left: Any = world.store.client.xrange(run.stream)
    world.store.client.delete(run.stream)
    for entry_id, fields in left:
        world.store.client.xadd(run.stream, fields, id=entry_id)
    return True


async def forgetful(scenario: Scenario, number: int, **budgets: Any) -> tuple[World, str, Worker, bool]:
    world = world_of(scenario)
    forgot: list[bool] = []

    async def forget() -> None:
        forgot.append(forget_the_last_entry(world, world.run_ids[0]))

    run_id = await world.submit(scenario.name, budgets=budgets, **scenario.submission)
    worker = world.worker(hook_at(number, forget))
    await world.settle(run_id, worker=worker)
    return world, run_id, worker, any(forgot)


@pytest.mark.parametrize("scenario", [COUNTER, STORYTELLER, ANEW], ids=lambda scenario: scenario.name)
def test_a_server_that_forgets_at_any_call_costs_an_attempt_at_most(scenario: Scenario) -> None:
    """I3, I17: no gap, no chunk twice, and the answer is whole."""

    async def one(number: int) -> bool:
        world, run_id, worker, forgot = await forgetful(scenario, number)
        record, entries = world.record(run_id), world.store.entries(world.keys.of_run(run_id))
        assert record.state is State.COMPLETED
        check_i1_one_terminal_and_it_is_last(record, entries)
        check_i2_i17_seqs_and_epochs(record, entries)
        fold = fold_all(record.message_id, [chunk for entry in entries for chunk in entry.chunks])
        assert fold.text() == scenario.text
        assert worker.refusals == []
        await world.aclose()
        return forgot

    normal = undisturbed(scenario.name)
    assert sum(run_virtual(one(number)) for number in range(1, normal.calls + 1)) > normal.calls / 2


def test_a_gap_with_the_budget_spent_ends_with_a_reason() -> None:
    """I20: also then nothing escapes, and the stream ends with its terminal."""

    async def program() -> None:
        world, run_id, worker, forgot = await forgetful(COUNTER, 4, attempts=0)
        record, entries = world.record(run_id), world.store.entries(world.keys.of_run(run_id))
        assert forgot
        assert (record.state, record.reason) == (State.SEALED, Reason.ATTEMPTS)
        assert "lost" in record.error
        check_i1_one_terminal_and_it_is_last(record, entries)
        check_i2_i17_seqs_and_epochs(record, entries)
        assert worker.refusals == []
        await world.aclose()

    run_virtual(program())
