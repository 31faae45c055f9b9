"""How turns end in a real worker: stopped, cancelled, stuck, failed; and what their process does then.

Rules of this file: what a turn does is in `tests/support/turns.py`; every end is checked by a reader and by the record.
"""

from __future__ import annotations

import asyncio

import pytest

from runner.client import Runner
from tests.support.fleet import SHORT_LEASE, Fleet, Reading, detail, play, start, whats
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.e2e

COUNT = {"n": 80, "pace_ms": 15}


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("agent", ["stubborn", "threaded"])
def test_a_turn_that_ignores_its_cancellation_is_handed_over(agent: str, isolate: bool) -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        released = fleet.dir / "released"
        pool = fleet.start_pool(isolate=isolate)
        reading = await start(runner, agent, input=str(released))
        await reading.until_words(1)
        pool.terminate()
        assert await asyncio.to_thread(pool.exit_code) == 0
        assert not pool.logged("worker.turns-left-to-supervisor")
        released.touch()
        fleet.start_pool()
        record = await reading.ended_as("completed")
        assert reading.text.startswith("attempt1 attempt2 ")
        assert (record.attempts, record.strikes, record.handovers) == (2, 0, 1)

    play(story)


def test_a_loop_that_user_code_blocks_stops_the_heart() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        released = fleet.dir / "released"
        fleet.start_supervisor()
        pool = fleet.start_pool()
        reading = await start(runner, "stuck", input=str(released))
        await reading.until_words(1)
        child = pool.one_child()
        await asyncio.to_thread(until, lambda: pool.logged("heart.loop-stuck"), 10, "a heart that stopped")
        later = [await start(runner, "echo", f"word{number}") for number in range(3)]
        fleet.start_pool()
        record = await reading.ended_as("completed")
        assert (record.attempts, record.strikes) == (2, 1)
        assert reading.text == "attempt1 attempt2 "
        for echo in later:
            assert (await echo.ended_as("completed")).attempts == 1
        released.touch()
        await asyncio.to_thread(until, lambda: pool.logged("attempt.lost"), 10, "end of the late attempt")
        assert await reading.record() == record
        assert pool.one_child().pid == child.pid

    play(story, loop_lag_limit_ms=300, **SHORT_LEASE)


def test_blocking_code_in_a_step_keeps_the_lease() -> None:
    """BP-14: no clock starts a second execution of a turn whose process lives."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        released = fleet.dir / "released"
        fleet.start_supervisor()
        fleet.start_pool(2)
        reading = await start(runner, "threaded", input=str(released))
        await reading.until_words(1)

        async def outlived() -> bool:
            record = await reading.record()
            return record.lease_until - record.claimed_at > 2 * int(SHORT_LEASE["lease_ms"])

        await until_async(outlived, 20, "a lease renewed past its first end")
        released.touch()
        record = await reading.ended_as("completed")
        assert (record.attempts, record.strikes) == (1, 0)
        assert reading.text == "attempt1 True "

    play(story, loop_lag_limit_ms=300, **SHORT_LEASE)


def test_an_agent_that_raises_fails_its_run_and_no_other() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool()
        other = await start(runner, "counter", input=COUNT)
        reading = await start(runner, "raises")
        record = await reading.ended_as("failed", "agent_error")
        assert record.error == "ValueError: no luck"
        assert reading.text == "trying "
        assert "no luck" not in pool.log.read_text(), "what an agent raised may hold what users said"
        await other.counted(80)

    play(story)


def test_an_agent_that_the_worker_does_not_know_fails_its_run() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool()
        reading = await start(runner, "nobody")
        record = await reading.ended_as("failed", "unknown_agent")
        assert "nobody" in record.error
        assert "counter" in record.error, "the error names the agents there are"

    play(story)


@pytest.mark.parametrize("isolate", [False, True])
def test_a_silent_running_turn_is_cancelled_from_another_process(isolate: bool) -> None:
    """Nothing is appended, so the heartbeat brings the word."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_pool(isolate=isolate)
        reading = await start(runner, "waits")
        await reading.until_words(1)
        assert (await runner.cancel(reading.run_id)).landed
        record = await reading.ended_as("cancelled", "cancel_requested")
        assert (record.model_extra or {})["ended_by"] == "owner:1:cancelled"
        assert (await runner.cancel(reading.run_id)).landed is False

    play(story)


def test_a_queued_run_is_cancelled_at_once() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        reading = await start(runner, "counter", input=COUNT)
        assert (await runner.cancel(reading.run_id)).landed
        assert (await reading.record()).state == "cancelled"
        fleet.start_pool()
        await (await start(runner, "echo", "a later job")).ended_as("completed")
        record = await reading.ended_as("cancelled", "cancel_requested")
        assert record.attempts == 0

    play(story)


@pytest.mark.parametrize("whole_host", [False, True])
def test_a_cancel_outlives_the_worker_that_should_have_heard_it(whole_host: bool) -> None:
    """BP-35: the supervisor ends the run; it is never executed again."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool()
        reading = await start(runner, "waits")
        await reading.until_words(1)
        child = pool.one_child()
        child.suspend()
        assert (await runner.cancel(reading.run_id)).landed
        if whole_host:
            pool.kill_all()
        else:
            child.kill()
        fleet.start_supervisor()
        fleet.start_pool()
        record = await reading.ended_as("cancelled", "cancel_requested")
        assert (record.attempts, record.dispatches) == (1, 1)
        expected = ["created", "claimed", "cancel-requested", *([] if whole_host else ["owner-gone"]), "cancelled"]
        assert await whats(runner, reading.run_id) == expected

    play(story, **SHORT_LEASE)


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("code", [3, 0])
def test_a_turn_that_ends_its_process_is_tried_again(code: int, isolate: bool) -> None:
    """Also with code 0: a process that ends by itself was not told to, and its lease need not run out."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        fleet.start_supervisor()
        fleet.start_pool(isolate=isolate)
        reading = await start(runner, "exits", input=code)
        record = await reading.ended_as("completed")
        assert reading.text == "attempt1 attempt2 "
        assert (record.attempts, record.strikes) == (2, 1)
        assert await detail(runner, reading.run_id, "lost") == f"exit code {code}"

    play(story)


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("what", ["SystemExit", "KeyboardInterrupt"])
def test_a_turn_that_would_end_its_process_fails_alone(what: str, isolate: bool) -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(isolate=isolate)
        child = pool.one_child()
        other = await start(runner, "counter", input=COUNT)
        record = await (await start(runner, "quits", input=what)).ended_as("failed", "agent_error")
        assert record.error == f"RuntimeError: the agent raised {what}"
        assert (await other.counted(COUNT["n"])).attempts == 1
        assert pool.one_child().pid == child.pid

    play(story)


def test_a_full_server_ends_neither_worker_nor_supervisor() -> None:
    """Out of memory is a refusal that passes: what was refused is tried again from the record."""

    async def story(fleet: Fleet, runner: Runner) -> None:
        supervisor = fleet.start_supervisor()
        pool = fleet.start_pool()
        child = pool.one_child()
        readings: list[Reading] = [await start(runner, "counter", input=COUNT) for _ in range(3)]
        for reading in readings:
            await reading.until_words(3)
        fleet.redis.config_set("maxmemory", "1mb")
        await asyncio.to_thread(
            until, lambda: pool.logged("worker.turn-broke") or pool.logged("turn.retry"), 10, "trouble"
        )
        fleet.redis.config_set("maxmemory", "0")
        for reading in readings:
            await reading.counted(80)
        await (await start(runner, "echo", "still here")).ended_as("completed")
        assert pool.one_child().pid == child.pid
        assert not supervisor.has_ended

    play(story, **SHORT_LEASE)
