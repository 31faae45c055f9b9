"""The pool's parent: it replaces what dies, slower when it dies at once, and says why it died.

Rule of this file: times are lower bounds taken from the log, so a slow machine cannot break a test.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from runner.client import Runner
from tests.support.fleet import ROOT, Fleet, detail, only_child_of, play, start
from tests.support.waiting import until

pytestmark = pytest.mark.e2e


def test_a_process_that_dies_at_once_is_replaced_with_a_growing_delay() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(ready=False, environment={"TURNS_DIE_AT_FORK": "1"})
        await asyncio.to_thread(until, lambda: len(pool.logged("pool.process-ended")) >= 5, 20, "five deaths")
        ends = pool.logged("pool.process-ended")
        assert {end["cause"] for end in ends} == {"exit code 7"}
        assert len({end["process_id"] for end in ends}) == len(ends)
        at = [datetime.fromisoformat(end["timestamp"]) for end in ends]
        gaps = [(after - before).total_seconds() for before, after in pairwise(at)]
        assert all(gap >= least for gap, least in zip(gaps[1:], (0.38, 0.78, 1.5), strict=False)), gaps
        pool.terminate()
        assert await asyncio.to_thread(pool.exit_code) == 0

    play(story)


def test_a_process_that_lived_is_replaced_at_once() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(2)
        before = {child.pid for child in pool.children()}
        (victim, *_) = pool.children()
        victim.kill()
        await asyncio.to_thread(until, lambda: len({c.pid for c in pool.children()} - before) == 1, 10, "a successor")
        assert [end["cause"] for end in pool.logged("pool.process-ended")] == ["signal SIGKILL"]
        await (await start(runner, "echo", "served")).ended_as("completed")

    play(story)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_told_pool_ends_well_and_leaves_nothing(number: signal.Signals) -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(3)
        pool.process.send_signal(number)
        assert await asyncio.to_thread(pool.exit_code) == 0
        assert fleet.processes() == []
        assert fleet.workers() == []
        assert fleet.in_rq() == []

    play(story)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("agents", "no.such.module:agents", "RUNNER_AGENTS"),
        ("agents", "tests.support.turns:PATIENCE_S", "not an `Agents`"),
        ("redis_url", "redis://127.0.0.1:1", "127.0.0.1:1"),
        ("beat_ms", "4000", "RUNNER_BEAT_MS"),
    ],
)
def test_a_pool_that_could_not_work_says_why_and_fails(setting: str, value: str, said: str) -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool(ready=False, environment={f"RUNNER_{setting.upper()}": value})
        assert await asyncio.to_thread(pool.exit_code, 30) != 0
        assert said in pool.log.read_text()

    play(story)


def test_a_supervisor_ends_well_when_it_is_told_to() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        supervisor = fleet.start_supervisor()
        (facts,) = await runner.supervisors()
        assert facts.pid == supervisor.pid
        supervisor.terminate()
        assert await asyncio.to_thread(supervisor.exit_code) == 0
        assert await runner.supervisors() == []

    play(story)


@pytest.mark.slow
def test_a_stuck_process_does_not_outlive_its_killed_parent() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        pool = fleet.start_pool()
        reading = await start(runner, "stuck", input=str(fleet.dir / "never"))
        await reading.until_words(1)
        pool.process.kill()
        pool.process.wait()
        await asyncio.to_thread(until, lambda: fleet.processes() == [], 20, "end of the orphan")
        fleet.start_supervisor()
        fleet.start_pool()
        record = await reading.ended_as("completed")
        assert (record.attempts, await detail(runner, reading.run_id, "lost")) == (2, "lease expired")

    play(story)


_POOL_OF_SLEEPERS = """
import signal, sys
from pathlib import Path
from runner.process.worker.pool import Pool
from runner.settings import load_settings
from runner.telemetry import set_up_logging
set_up_logging(as_json=True)
pool = Pool(load_settings(redis_url=sys.argv[1]), 1, lambda name: signal.pause() or 0, memory_events=Path(sys.argv[2]))
print(pool.run())
"""


@contextmanager
def sleepers(fleet: Fleet, events: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", _POOL_OF_SLEEPERS, fleet.server.url, str(events)]
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=fleet.environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def test_the_kernel_is_named_when_it_killed_for_memory() -> None:
    async def story(fleet: Fleet, runner: Runner) -> None:
        events = fleet.dir / "memory.events"
        events.write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n")
        with sleepers(fleet, events) as process:
            assert process.stderr is not None
            child = await asyncio.to_thread(only_child_of, process.pid)
            child.kill()
            assert '"cause": "signal SIGKILL"' in await asyncio.to_thread(process.stderr.readline)
            await asyncio.to_thread(process.stderr.readline)  # its leases
            child = await asyncio.to_thread(only_child_of, process.pid, child.pid)
            events.write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n")
            child.kill()
            assert '"cause": "out of memory"' in await asyncio.to_thread(process.stderr.readline)

    play(story)
