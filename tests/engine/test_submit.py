"""Submitting: one run per key, refusals that store nothing, and what an agent's absence means."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runner import ids
from runner.core.run import Reason, State
from runner.engine import inspection
from runner.engine.submit import Submission, Submitted, submit
from runner.errors import IdempotencyConflict, InvalidInput, RunNotFound, ServerUnreachable, TooLarge
from runner.store.executor import AsyncExecutor
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.scenarios import COUNTER, world_of
from tests.support.faults import Fault
from tests.support.simulation import World, at_call
from tests.support.store import script_on_manual_clock
from tests.support.virtual_time import run_virtual


def in_world(program: Callable[[World], Awaitable[None]], **settings: int) -> None:
    async def main() -> None:
        world = world_of(None, **settings)
        try:
            await program(world)
        finally:
            await world.aclose()

    run_virtual(main())


async def ask(world: World, **fields: Any) -> Submitted:
    return await submit(world.process("caller").links, Submission(**{"agent": "counter", **fields}))


def test_the_same_key_and_payload_is_the_same_run() -> None:
    async def program(world: World) -> None:
        first = await ask(world, idempotency_key="k", **COUNTER.submission)
        again = await ask(world, idempotency_key="k", **COUNTER.submission)
        assert again == Submitted(first.run_id, created=False)
        assert first.created
        assert world.dispatcher.depth() == 1
        await world.settle(first.run_id)
        assert await ask(world, idempotency_key="k", **COUNTER.submission) == again, "also when it has ended"
        assert (await check_outcome(world, first.run_id, COUNTER)).key == "k"

    in_world(program)


@pytest.mark.parametrize("other", [{"input": {"n": 5}}, {"agent": "steps"}, {"message": "x"}], ids=repr)
def test_the_same_key_with_another_payload_is_refused(other: dict[str, Any]) -> None:
    async def program(world: World) -> None:
        first = await ask(world, idempotency_key="k", input={"n": 4})
        with pytest.raises(IdempotencyConflict) as why:
            await ask(world, **{"idempotency_key": "k", "input": {"n": 4}, **other})
        assert why.value.run_id == first.run_id
        assert world.run_ids == [first.run_id]

    in_world(program)


def test_without_a_key_every_submission_is_a_run() -> None:
    async def program(world: World) -> None:
        assert len({(await ask(world)).run_id for _ in range(3)}) == 3

    in_world(program)


def test_runs_of_one_thread_share_its_partition() -> None:
    async def program(world: World) -> None:
        made = [await ask(world, thread="t-1") for _ in range(3)]
        partitions = {ids.partition_of_run(one.run_id) for one in made}
        assert partitions == {ids.partition_of_name("t-1")}
        assert {world.record(one.run_id).thread for one in made} == {"t-1"}

    in_world(program)


REFUSED: tuple[tuple[dict[str, Any], type[Exception]], ...] = (
    ({"input": "x" * 2_000}, TooLarge),
    ({"message": "x" * 2_000}, TooLarge),
    ({"input": object()}, InvalidInput),
    ({"agent": ""}, InvalidInput),
    ({"agent": "two words"}, InvalidInput),
    ({"thread": "two\nlines"}, InvalidInput),
    ({"idempotency_key": "k" * 201}, InvalidInput),
    ({"budgets": {"attempts": -1}}, InvalidInput),
    ({"budgets": {"attempts": float("nan")}}, InvalidInput),
    ({"budgets": {"no_such": 1}}, InvalidInput),
)


@pytest.mark.parametrize(("fields", "kind"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_is_refused_leaves_nothing_behind(fields: dict[str, Any], kind: type[Exception]) -> None:
    async def program(world: World) -> None:
        before = world.store.contents()
        with pytest.raises(kind):
            await ask(world, **fields)
        assert world.store.contents() == before
        assert world.dispatcher.depth() == 0

    in_world(program, input_bytes=1_000)


def test_a_submit_whose_last_call_fails_is_no_failure() -> None:
    """The run is recorded and enqueued: to be told otherwise would make a caller submit it a second time."""

    async def program(world: World) -> None:
        caller = world.process("caller", at_call(3, Fault.LOSE_REQUEST))
        hasty = AsyncExecutor("redis://fake", retries=0, client=caller.store.client, find_script=script_on_manual_clock)
        links = dataclasses.replace(caller.links, store=hasty)
        made = await submit(links, Submission("counter", **COUNTER.submission))
        assert caller.line.log == ["create", "enqueue", "dispatched"]
        assert made == Submitted(world.run_ids[0], created=True)
        await world.settle(made.run_id)
        assert (await check_outcome(world, made.run_id, COUNTER)).attempts == 1

    in_world(program)


def test_a_submit_whose_record_cannot_be_written_says_so() -> None:
    async def program(world: World) -> None:
        caller = world.process("caller", at_call(1, Fault.LOSE_REQUEST))
        hasty = AsyncExecutor("redis://fake", retries=0, client=caller.store.client, find_script=script_on_manual_clock)
        with pytest.raises(ServerUnreachable):
            await submit(dataclasses.replace(caller.links, store=hasty), Submission("counter"))
        assert world.run_ids == []

    in_world(program)


def test_budgets_of_a_run_override_single_ones() -> None:
    async def program(world: World) -> None:
        made = await ask(world, budgets={"attempts": 7, "no_progress_ms": float("inf")})
        budgets = world.record(made.run_id).facts().budgets
        assert (budgets.attempts, budgets.no_progress_ms) == (7, None)
        assert budgets.lost_workers == world.settings.budgets.lost_workers

    in_world(program)


def test_an_agent_that_no_worker_knows_fails_its_run() -> None:
    """I20: with the reason, and with what the worker does know."""

    async def program(world: World) -> None:
        run_id = await world.submit("nobody")
        await world.settle(run_id)
        record = await check_ended(world, run_id)
        assert (record.state, record.reason) == (State.FAILED, Reason.UNKNOWN_AGENT)
        assert "storyteller" in record.error

    in_world(program)


def test_a_run_that_is_not_there_is_not_found() -> None:
    async def program(world: World) -> None:
        links = world.process("caller").links
        for question in (inspection.get, inspection.explain, inspection.cancel):
            with pytest.raises(RunNotFound):
                await question(links, ids.new_run_id())
            with pytest.raises(InvalidInput):
                await question(links, "no run id")

    in_world(program)


def test_live_runs_are_those_that_have_not_ended() -> None:
    async def program(world: World) -> None:
        run_ids = [await world.submit("counter", **COUNTER.submission) for _ in range(3)]
        await world.process("caller").cancel(run_ids[1])
        live = await inspection.live_runs(world.process("caller").links)
        assert {record.run_id for record in live} == {run_ids[0], run_ids[2]}
        assert len(await inspection.live_runs(world.process("caller").links, limit=1)) == 1
        await world.settle(*run_ids)
        assert await inspection.live_runs(world.process("caller").links) == []

    in_world(program)


def test_a_cancel_of_a_run_that_has_ended_says_so() -> None:
    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        await world.settle(run_id)
        answer = await world.process("caller").cancel(run_id)
        assert answer == inspection.Cancelled(run_id, landed=False, state="completed")
        queued = await world.submit("counter")
        first = await world.process("caller").cancel(queued)
        assert first == inspection.Cancelled(queued, landed=True, state="queued")
        assert world.record(queued).state is State.CANCELLED

    in_world(program)
