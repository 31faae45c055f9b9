"""RQ's own words to a worker: it looks like any RQ worker, and takes RQ's commands for the turn they mean.

Rule of this file: commands are sent with RQ's public functions, by name.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from rq.command import (
    send_command,
    send_kill_horse_command,
    send_shutdown_command,
    send_stop_execution_command,
    send_stop_job_command,
)

from runner.client import Runner
from runner.dispatch import Ticket
from tests.support.fleet import Fleet, Reading, play, start, whats
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

COUNT = {"n": 120, "pace_ms": 15}


async def running(runner: Runner, count: int) -> list[Reading]:
    readings = [await start(runner, "counter", input=COUNT) for _ in range(count)]
    for reading in readings:
        await reading.until_words(3)
    return readings


def job_of(reading: Reading) -> str:
    return Ticket(reading.run_id, 0).job_id


def test_rq_sees_a_busy_worker_with_its_executions_and_then_an_idle_one() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool()
        readings = await running(runner, 3)
        (worker,) = fleet.in_rq()
        assert worker.get_state() == "busy"
        executing = {execution.job_id for execution in worker.get_current_executions()}
        assert executing == {job_of(reading) for reading in readings}
        assert worker.current_execution_count == 3
        for reading in readings:
            await reading.counted(120)
        await asyncio.to_thread(until, lambda: [w.get_state() for w in fleet.in_rq()] == ["idle"], 5, "idle worker")
        (worker,) = fleet.in_rq()
        assert worker.get_current_executions() == []
        assert worker.successful_job_count == 3
        assert fleet.redis.keys("rq:execution*") == []

    play(story)


@pytest.mark.parametrize("isolate", [False, True])
def test_stopping_a_job_cancels_its_run_and_no_other(isolate: bool) -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool(4 if isolate else 1, isolate=isolate)
        readings = await running(runner, 4)
        send_stop_job_command(fleet.redis, job_of(readings[2]))
        await readings[2].ended_as("cancelled", "cancel_requested")
        for other in (readings[0], readings[1], readings[3]):
            await other.counted(120)

    play(story)


def test_stopping_an_execution_cancels_its_run() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool()
        readings = await running(runner, 2)
        (worker,) = fleet.in_rq()
        wanted = next(e for e in worker.get_current_executions() if e.job_id == job_of(readings[0]))
        send_stop_execution_command(fleet.redis, wanted.job_id, wanted.id)
        await readings[0].ended_as("cancelled", "cancel_requested")
        await readings[1].counted(120)

    play(story)


def test_a_shutdown_command_is_a_hand_over() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool()
        readings = await running(runner, 4)
        (first,) = fleet.in_rq()
        send_shutdown_command(fleet.redis, first.name)
        for reading in readings:
            record = await reading.counted(120)
            assert (record.attempts, record.strikes, record.handovers) == (2, 0, 1)
            owners = [e["detail"] for e in await runner.explain(reading.run_id) if e["what"] == "claimed"]
            assert owners[0] == first.name, owners
            assert owners[1] != first.name, "a process popped back what it had just handed over"
        assert fleet.processes()

    play(story)


def test_nonsense_on_the_channel_of_a_worker_does_not_make_it_deaf() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool()
        (reading,) = await running(runner, 1)
        (worker,) = fleet.in_rq()
        channel = f"rq:pubsub:{worker.name}"
        for nonsense in (
            b"\xff\xfe",
            b"garbage",
            b"[]",
            b"{}",
            b"null",
            b'{"command": 5}',
            json.dumps({"command": "x"}),
        ):
            assert fleet.redis.publish(channel, nonsense) == 1
        send_kill_horse_command(fleet.redis, worker.name)
        send_command(fleet.redis, worker.name, "stop-execution", job_id="x", execution_id="y")
        send_command(fleet.redis, worker.name, "stop-job")
        send_stop_job_command(fleet.redis, job_of(reading))
        await reading.ended_as("cancelled", "cancel_requested")
        assert await whats(runner, reading.run_id) == ["created", "claimed", "cancel-requested", "cancelled"]

    play(story)
