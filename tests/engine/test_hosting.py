"""How a turn is told to stop, by what, and how long it is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from runner.agent import TurnContext
from runner.core.run import State
from runner.engine.hosting import LAST_WORD_S, UNWIND_S, Hosted, HostedTurn, Interrupt
from runner.store import calls
from runner.store.answers import Code
from tests.simulation.invariants import check_ended
from tests.simulation.scenarios import world_of
from tests.support.simulation import Worker, World
from tests.support.store import OTHER_RUN_ID, RUN_ID, claimed
from tests.support.virtual_time import pass_ms, run_virtual


def in_world(program: Callable[[World], Awaitable[None]], **settings: int) -> None:
    async def main() -> None:
        world = world_of(None, **settings)
        try:
            await program(world)
        finally:
            await world.aclose()

    run_virtual(main())


async def never_ends() -> None:
    await asyncio.Event().wait()


def hosted_turn(world: World, run_id: str = RUN_ID, epoch: int = 1) -> HostedTurn:
    turn = HostedTurn(world.keys.of_run(run_id), "worker-1")
    turn.epoch = epoch
    return turn


@pytest.mark.parametrize(
    ("told", "stays"),
    [
        ([Interrupt.HAND_OVER, Interrupt.CANCEL], Interrupt.CANCEL),
        ([Interrupt.CANCEL, Interrupt.HAND_OVER], Interrupt.CANCEL),
        ([Interrupt.CANCEL, Interrupt.LOST, Interrupt.HAND_OVER], Interrupt.LOST),
    ],
)
def test_the_strongest_reason_to_stop_stays(told: list[Interrupt], stays: Interrupt) -> None:
    async def program(world: World) -> None:
        turn = hosted_turn(world)
        for interrupt in told:
            turn.stop(interrupt)
        assert turn.interrupt is stays

    in_world(program)


def test_a_hand_over_waits_for_the_boundary_and_all_else_stops_the_work() -> None:
    async def program(world: World) -> None:
        turn = hosted_turn(world)
        work: asyncio.Task[object] = asyncio.create_task(never_ends())
        turn.begin(work)
        await asyncio.sleep(0)
        turn.stop(Interrupt.HAND_OVER)
        await pass_ms(10_000)
        assert not work.done()
        with pytest.raises(asyncio.CancelledError):
            await turn.at_boundary()
        turn.stop(Interrupt.CANCEL)
        assert await turn.work_is_over(work)
        assert work.cancelled()

    in_world(program)


def test_an_agent_that_swallows_its_stop_in_a_loop_lets_others_run() -> None:
    async def program(world: World) -> None:
        turn, others = hosted_turn(world), asyncio.Event()
        turn.stop(Interrupt.HAND_OVER)
        asyncio.get_running_loop().call_soon(others.set)
        swallowed = 0
        while not others.is_set() and swallowed < 100:
            with pytest.raises(asyncio.CancelledError):
                await turn.at_boundary()
            swallowed += 1
        assert others.is_set()

    in_world(program)


def test_what_was_told_to_stop_before_it_began_does_not_begin() -> None:
    async def program(world: World) -> None:
        turn = hosted_turn(world)
        turn.stop(Interrupt.HAND_OVER)
        work: asyncio.Task[object] = asyncio.create_task(never_ends())
        turn.begin(work)
        assert await turn.work_is_over(work)

    in_world(program)


@pytest.mark.parametrize(
    ("code", "interrupt"),
    [
        (Code.OK, None),
        (Code.CANCELLED, Interrupt.CANCEL),
        (Code.FENCED, Interrupt.LOST),
        (Code.TERMINAL, Interrupt.LOST),
        (Code.UNKNOWN, Interrupt.LOST),
    ],
)
def test_what_the_server_says_of_an_attempt(code: Code, interrupt: Interrupt | None) -> None:
    async def program(world: World) -> None:
        turn = hosted_turn(world)
        turn.answered(code)
        assert turn.interrupt is interrupt

    in_world(program)


def test_heartbeats_tell_each_turn_its_own_news_in_one_trip() -> None:
    """Three turns of one partition: one lives, one is cancelled, one was taken over."""

    async def program(world: World) -> None:
        fenced_id = f"00{'c' * 24}"
        for run_id in (RUN_ID, OTHER_RUN_ID, fenced_id):
            claimed(world.store, run_id)
        world.store.run(calls.cancel(world.keys.of_run(OTHER_RUN_ID)))
        lives, cancelled, old = (
            hosted_turn(world),
            hosted_turn(world, OTHER_RUN_ID),
            hosted_turn(world, fenced_id, epoch=0),
        )
        old.epoch = 7
        hosted = Hosted(world.keys)
        with hosted.hosting(lives), hosted.hosting(cancelled), hosted.hosting(old):
            told = dict(hosted.beat(world.store.executor, lease_ms=60_000))
        assert told == {cancelled: Code.CANCELLED, old: Code.FENCED}
        assert world.record(RUN_ID).lease_until == world.store.now_ms + 60_000
        assert len(hosted) == 0
        assert hosted.beat(world.store.executor, lease_ms=1) == []

    in_world(program)


def test_the_end_of_one_attempt_leaves_the_other_of_the_same_run_hosted() -> None:
    async def program(world: World) -> None:
        hosted, old, new = Hosted(world.keys), hosted_turn(world), hosted_turn(world, epoch=2)
        with hosted.hosting(new):
            with hosted.hosting(old):
                assert len(hosted) == 2
            assert len(hosted) == 1
            assert hosted.cancel(RUN_ID)
            assert new.interrupt is Interrupt.CANCEL
            assert old.interrupt is None
        assert not hosted.cancel(RUN_ID)

    in_world(program)


async def polite(ctx: TurnContext) -> AsyncIterator[str]:
    """Comes to a boundary every 20 ms."""
    for number in range(10_000):
        yield f"{number} "
        await pass_ms(20)


async def busy(ctx: TurnContext) -> AsyncIterator[str]:
    """Comes to no boundary for a long time."""
    yield "0 "
    await pass_ms(600_000)


async def deaf(ctx: TurnContext) -> None:
    """Ignores two cancellations, and goes on for a long time."""
    await ctx.say("0 ")
    for _ in range(3):
        try:
            await pass_ms(600_000)
        except asyncio.CancelledError:
            continue


async def running(world: World, agent: Callable[..., object]) -> tuple[str, Worker, asyncio.Task[object]]:
    world.agents.turn(agent.__name__)(agent)  # type: ignore[arg-type]
    run_id = await world.submit(agent.__name__)
    worker = world.worker()
    working: asyncio.Task[object] = asyncio.create_task(world.work_off(worker))
    await world.watch(lambda: world.record(run_id).progress > 0)
    return run_id, worker, working


@pytest.mark.parametrize(
    ("agent", "at_least_ms", "at_most_ms"),
    [
        (polite, 0, 20),
        (busy, 50, 60),
        (deaf, 50 + UNWIND_S * 1_000, 60 + UNWIND_S * 1_000),
    ],
    ids=["at its boundary", "forced after the grace", "abandoned"],
)
def test_a_hand_over_takes_as_long_as_the_agent_needs_and_no_longer(
    agent: Callable[..., object], at_least_ms: float, at_most_ms: float
) -> None:
    """D13; the grace is 50 ms here."""

    async def program(world: World) -> None:
        run_id, worker, working = await running(world, agent)
        asked = world.now_ms
        left = await worker.run(worker.runtime.hosted.hand_over(grace_s=0.05))
        await working
        assert left == 0
        assert at_least_ms <= world.now_ms - asked <= at_most_ms
        record = world.record(run_id)
        assert (record.state, record.handovers, record.owner) == (State.QUEUED, 1, "")
        assert world.dispatcher.depth() == 0, "nothing is enqueued before this process has left its queue"
        worker.runtime.requeue.may_enqueue.set()
        await worker.run(worker.runtime.requeue.drained())
        assert world.dispatcher.depth() == 1
        assert world.record(run_id).dispatch == "sent"

    in_world(program)


def test_a_process_leaves_without_the_answer_of_a_server_that_is_away() -> None:
    async def program(world: World) -> None:
        run_id, worker, working = await running(world, busy)
        world.away = True
        asked = world.now_ms
        left = await worker.run(worker.runtime.hosted.hand_over(grace_s=0.05))
        assert left == 1
        assert world.now_ms - asked <= 60 + (UNWIND_S + LAST_WORD_S) * 1_000
        world.away = False
        await working
        assert world.record(run_id).state is State.QUEUED, "it goes on asking for as long as the process lives"

    in_world(program)


def test_turns_that_were_handed_over_go_to_the_head_of_the_queue_in_their_order() -> None:
    async def program(world: World) -> None:
        first, worker, working = await running(world, busy)
        waiting = await world.submit("busy")
        await worker.told_to_stop()
        await working
        front, back = world.pop(), world.pop()
        assert front is not None
        assert back is not None
        assert (front.run_id, back.run_id) == (first, waiting)

    in_world(program)


def test_a_turn_that_is_claimed_while_the_process_stops_is_handed_over_at_once() -> None:
    async def program(world: World) -> None:
        _, worker, working = await running(world, polite)
        late = await world.submit("polite")
        await worker.told_to_stop()
        await working
        ticket = world.pop()
        assert ticket is not None
        ticket = ticket if ticket.run_id == late else world.pop()
        assert ticket is not None
        await worker.execute(ticket)
        record = world.record(late)
        assert (record.state, record.handovers, record.progress) == (State.QUEUED, 1, 0)

    in_world(program)


def test_a_cancel_is_heard_of_with_the_next_heartbeat_of_a_silent_turn() -> None:
    async def program(world: World) -> None:
        run_id, _, working = await running(world, busy)
        assert await world.process("caller").cancel(run_id) is not None
        asked = world.now_ms
        await working
        assert world.now_ms - asked <= 2 * world.settings.beat_ms
        assert (await check_ended(world, run_id)).state is State.CANCELLED

    in_world(program)
