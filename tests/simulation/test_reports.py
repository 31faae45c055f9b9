"""Field reports of other systems, lived through here; each test cites its report."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from runner.agent import TurnContext
from runner.core.run import Reason, State
from runner.store.answers import Code
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.scenarios import COUNTER, STORYTELLER
from tests.simulation.test_budgets import executions, in_world
from tests.support.faults import Fault
from tests.support.simulation import World, at_call
from tests.support.virtual_time import pass_ms


def test_killed_before_or_after_the_first_chunk_the_turn_is_asked_again() -> None:
    """BP-07: nothing was said yet, so there is nothing to continue: the same turn, one message, attempt 2."""

    async def program(world: World) -> None:
        for dies_at, fault in ((2, Fault.DIE_BEFORE), (2, Fault.DIE_AFTER)):
            run_id = await world.submit("storyteller", **STORYTELLER.submission)
            await world.work_off(world.worker(at_call(dies_at, fault)))
            await world.settle(run_id)
            assert (await check_outcome(world, run_id, STORYTELLER)).attempts == 2

    in_world(program)


def test_the_id_of_the_message_is_stored_before_its_first_chunk() -> None:
    """BP-08: every attempt writes into the one message that was named when the run was recorded."""

    async def program(world: World) -> None:
        run_id = await world.submit("storyteller", **STORYTELLER.submission)
        message_id = world.record(run_id).message_id
        assert message_id
        await world.work_off(world.worker(at_call(4, Fault.DIE_AFTER)))
        await world.settle(run_id)
        record = await check_outcome(world, run_id, STORYTELLER)
        assert record.message_id == message_id
        started = [
            chunk
            for entry in world.store.entries(world.keys.of_run(run_id))
            for chunk in entry.chunks
            if chunk["type"] == "start"
        ]
        assert started == [{"type": "start", "messageId": message_id}]

    in_world(program)


def test_a_stalled_attempt_and_its_successor_in_the_same_process() -> None:
    """BP-10: same host, same process, same name: only the epoch tells the two apart, and the second keeps its lease."""

    async def program(world: World) -> None:
        run_id = await world.submit("counter", input={"n": 30, "pace_ms": 100})
        worker = world.worker()
        first = asyncio.create_task(world.work_off(worker))
        await world.watch(lambda: world.record(run_id).progress > 2)
        worker.line.awake.clear()  # its sends stand still, and so do its beats
        await world.watch(lambda: world.record(run_id).dispatch == "sent" and world.record(run_id).strikes == 1)
        ticket = world.pop()
        assert ticket is not None
        second = asyncio.create_task(worker.execute(ticket))
        worker.line.wake()
        await first
        assert len(worker.runtime.hosted) == 1, "the second attempt is hosted, and beaten for, on its own"
        await world.watch(lambda: world.ended(run_id))
        await second
        record = await check_ended(world, run_id)
        assert (record.state, record.epoch) == (State.COMPLETED, 2)
        refused = [a.code for a in worker.line.answers if a.act == "append" and a.code != Code.OK]
        assert refused == [Code.FENCED]

    in_world(program)


def test_a_second_delivery_while_the_first_runs_shows_nothing() -> None:
    """BP-11: one start, one finish, and one attempt on record."""

    async def program(world: World) -> None:
        run_id = await world.submit("counter", input={"n": 4, "pace_ms": 300})
        ticket = world.pop()
        assert ticket is not None
        first, second = world.worker(), world.worker()
        running = asyncio.create_task(first.execute(ticket))
        await world.watch(lambda: world.record(run_id).progress > 2)
        await second.execute(ticket)
        await world.watch(lambda: world.ended(run_id))
        await running
        assert (await check_outcome(world, run_id, COUNTER)).attempts == 1
        assert second.line.log == ["claim"]

    in_world(program)


def test_a_cancel_that_was_pending_when_the_process_died_ends_the_run() -> None:
    """BP-35: recovery ends it as cancelled; it is not put back."""

    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        await world.work_off(world.worker(at_call(3, Fault.DIE_BEFORE)))
        answer = await world.process("caller").cancel(run_id)
        assert answer is not None
        assert answer.state == "running"
        await world.watch(lambda: world.ended(run_id))
        record = await check_ended(world, run_id)
        assert (record.state, record.reason) == (State.CANCELLED, Reason.CANCEL_REQUESTED)
        assert executions(world, run_id) == 1
        assert world.dispatcher.depth() == 0

    in_world(program)


def stubborn(world: World, run_until_ms: int) -> None:
    """Registers an agent that swallows every cancellation until that time."""

    async def deaf(ctx: TurnContext) -> None:
        while world.now_ms < run_until_ms:
            with suppress(asyncio.CancelledError):
                await ctx.say("still here ")
            with suppress(asyncio.CancelledError):
                await pass_ms(100)

    world.agents.turn("deaf")(deaf)


def test_an_agent_that_ignores_its_cancellation_is_cancelled_all_the_same() -> None:
    """I19: a cancel wins in every state; what the agent still does is written nowhere."""

    async def program(world: World) -> None:
        stubborn(world, world.now_ms + 20_000)
        run_id = await world.submit("deaf")
        worker = world.worker()
        working = asyncio.create_task(world.work_off(worker))
        await world.watch(lambda: world.record(run_id).progress > 3)
        assert await world.process("caller").cancel(run_id) is not None
        await world.watch(lambda: world.ended(run_id), rounds=10)
        await working
        assert len(worker.runtime.hosted) == 0
        record = await check_ended(world, run_id)
        assert record.state is State.CANCELLED
        await pass_ms(20_000)
        assert world.record(run_id).seq == record.seq

    in_world(program)


def test_an_agent_that_ignores_a_planned_stop_is_handed_over_all_the_same() -> None:
    async def program(world: World) -> None:
        stubborn(world, world.now_ms + 5_000)
        run_id = await world.submit("deaf")
        first = world.worker()
        working = asyncio.create_task(world.work_off(first))
        await world.watch(lambda: world.record(run_id).progress > 3)
        await first.told_to_stop()
        await working
        assert world.record(run_id).state is State.QUEUED
        await world.settle(run_id)
        record = await check_ended(world, run_id)
        assert (record.state, record.handovers, record.strikes) == (State.COMPLETED, 1, 0)

    in_world(program)
