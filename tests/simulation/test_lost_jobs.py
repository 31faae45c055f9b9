"""RQ loses jobs in several ways, and so may the broker as a whole: a recorded run is executed all the same (BP-15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runner.core.run import State
from runner.dispatch import Ticket, TurnJob
from runner.store.answers import Code
from tests.simulation.invariants import check_outcome
from tests.simulation.playing import kept
from tests.simulation.scenarios import COUNTER
from tests.simulation.test_budgets import executions, in_world
from tests.support.faults import Fault
from tests.support.simulation import STEP_MS, World, at_call
from tests.support.virtual_time import pass_ms

Loss = Callable[[World, Ticket], object]


def entry_gone(world: World, ticket: Ticket) -> None:
    world.broker.lrem(world.dispatcher.queue.key, 0, ticket.job_id)


def hash_gone(world: World, ticket: Ticket) -> None:
    world.broker.delete(TurnJob.key_for(ticket.job_id))


def stranded(world: World, ticket: Ticket) -> None:
    """A worker was stopped between taking the job over and fetching it."""
    queue = world.dispatcher.queue
    moved = world.broker.lmove(queue.key, queue.intermediate_queue_key)
    assert moved == ticket.job_id.encode()


def popped_and_forgotten(world: World, ticket: Ticket) -> None:
    assert world.pop() == ticket


def all_gone(world: World, ticket: Ticket) -> None:
    world.broker.flushall()


LOSSES: tuple[Loss, ...] = (entry_gone, hash_gone, stranded, popped_and_forgotten, all_gone)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_job_that_rq_lost_is_enqueued_again(loss: Loss) -> None:
    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        since = world.now_ms
        loss(world, Ticket(run_id, 0))
        await world.settle(run_id)
        record = await check_outcome(world, run_id, COUNTER)
        assert record.attempts == 1
        assert record.dispatches == 2
        looks = 2 if loss is hash_gone else 1  # its entry is still there until a worker has tried it
        assert record.claimed_at - since <= looks * (world.settings.queue_check_ms + 2 * STEP_MS)

    in_world(program)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_the_job_of_a_later_attempt_is_found_missing_as_well(loss: Loss) -> None:
    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        await world.work_off(world.worker(at_call(3, Fault.DIE_BEFORE)))
        await world.watch(lambda: world.record(run_id).dispatch == "sent" and world.record(run_id).strikes == 1)
        loss(world, Ticket(run_id, 1))
        await world.settle(run_id)
        assert (await check_outcome(world, run_id, COUNTER)).attempts == 2

    in_world(program)


@pytest.mark.parametrize("looks", [1, 3])
def test_a_job_that_waits_is_not_enqueued_twice(looks: int) -> None:
    """However often a waiting run is looked at: its job is there."""

    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        until_ms = world.now_ms + looks * 2_000
        await world.watch(lambda: world.now_ms >= until_ms)
        assert world.dispatcher.depth() == 1
        assert world.record(run_id).dispatches == 1
        assert world.record(run_id).state is State.QUEUED

    in_world(program)


def test_without_a_broker_a_run_is_recorded_and_executed_when_it_is_back() -> None:
    """D8: submitting needs the record only; while the broker is away the supervisor goes on with all else."""

    async def program(world: World) -> None:
        world.broker_server.connected = False
        run_id = await world.submit("counter", **COUNTER.submission)
        assert world.record(run_id).dispatch == "pending"
        until_ms = world.now_ms + 5_000
        await world.watch(lambda: world.now_ms >= until_ms)
        assert world.record(run_id).dispatch == "pending"
        world.broker_server.connected = True
        await world.settle(run_id)
        assert (await check_outcome(world, run_id, COUNTER)).attempts == 1

    in_world(program)


def test_a_run_whose_worker_is_lost_while_the_broker_is_away_is_taken_back_and_enqueued_later() -> None:
    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        await world.work_off(world.worker(at_call(3, Fault.DIE_BEFORE)))
        world.broker_server.connected = False
        await world.watch(lambda: world.record(run_id).state is State.QUEUED)
        world.broker_server.connected = True
        await world.settle(run_id)
        assert (await check_outcome(world, run_id, COUNTER)).strikes == 1

    in_world(program)


def test_what_rq_says_of_a_job_changes_nothing_of_its_run() -> None:
    """BP-12: RQ calls the job failed or abandoned, and puts it back: the run that has ended stays as it is."""

    async def program(world: World) -> None:
        run_id = await world.submit("counter", **COUNTER.submission)
        await world.settle(run_id)
        before = kept(world)
        for epoch in (0, 1):
            world.dispatcher.enqueue([Ticket(run_id, epoch)])
        [job, _] = world.dispatcher.queue.jobs
        world.dispatcher.queue.failed_job_registry.add(job, -1, exc_string="AbandonedJobError")
        late = world.worker()
        assert await world.work_off(late) == 2
        assert [(answer.act, answer.code) for answer in late.line.answers] == [("claim", Code.TERMINAL)] * 2
        until_ms = world.now_ms + 5_000
        await world.watch(lambda: world.now_ms >= until_ms)
        assert kept(world) == before
        assert executions(world, run_id) == 1

    in_world(program)


def test_entries_that_are_no_runs_hide_no_run() -> None:
    """A stranger's member in the index, and a stream that is not ours, cost the others nothing."""

    async def program(world: World) -> None:
        run_id = await world.submit("counter", input={"n": 3, "pace_ms": 0})
        broken = await world.submit("counter", input={"n": 3, "pace_ms": 0})
        due = world.keys.of_run(run_id).due
        world.store.client.zadd(due, {"no run at all": 0})
        world.store.client.xadd(world.keys.of_run(broken).stream, {"e": "0", "c": "no json"}, id="1-0")
        world.store.client.hset(world.keys.of_run(broken).run, mapping={"seq": 1, "cancel_at": 1})
        while world.pop() is not None:
            continue
        supervisor = world.process("supervisor")
        for _ in range(80):
            await pass_ms(500)
            await supervisor.sweep()
            await world.work_off(world.worker())
            if world.ended(run_id):
                break
        assert world.record(run_id).state is State.COMPLETED
        assert world.store.client.zscore(due, "no run at all") is None

    in_world(program)
