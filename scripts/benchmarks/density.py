"""density: what one more streaming turn costs a worker process, and whether many of them make it miss heartbeats.

500, then 2,000 turns in one process (a fresh one for each), each writing a chunk every 500 ms. `kb_per_turn` is the
growth of the process's PSS against its idle state (a few turns already done), per turn; `missed_beats` is what the
process's own heart counted: beats later than twice their time, or withheld. `late_beats` is the same seen from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import ExitStack

from benchmarks.measure import BenchServer, Metrics, cpu_s, own_server, pss_kb, rounded, say
from benchmarks.programs import started
from benchmarks.readiness import all_ended, workers_ready
from benchmarks.runs import record_runs, tickets
from runner.client import Runner
from runner.store.records import ProcessFacts

SMOKE = ["--turns", "5", "--seconds", "1"]
PACE_MS = 500
WARM_UP = 20
WATCH_S = 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--turns", type=int, nargs="+", default=[500, 2_000], help="turns of each process")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long all turns stream before memory is read")


def run(options: argparse.Namespace) -> Metrics:
    """Memory per turn and missed beats; those without a number in their name are of the largest process."""
    metrics: Metrics = {}
    for turns in options.turns:
        with ExitStack() as stack:
            server = stack.enter_context(own_server())
            pool = stack.enter_context(started(server.url, "pool", 1, concurrency=turns + WARM_UP))
            measured = asyncio.run(_run(server, turns, options.seconds))
            pool.kill_all()  # the turns would go on for an hour
        metrics |= measured | {f"{name}_{turns}": value for name, value in measured.items() if name != "turns"}
    return metrics


async def _run(server: BenchServer, turns: int, seconds: float) -> Metrics:
    async with Runner.from_url(server.url) as runner:
        (facts,) = await workers_ready(runner, 1)
        await _start(runner, WARM_UP, {"n": 20, "pace_ms": 0})
        await all_ended(runner)
        idle_kb = pss_kb(facts.pid)
        await _start(runner, turns, {"n": 7_200, "pace_ms": PACE_MS})
        await workers_ready(runner, 1, lambda now: now.running >= turns)
        say(f"{turns} turns stream in one process")
        used = cpu_s(facts.pid)
        last, late = await _watch(runner, seconds)
        return rounded(
            {
                "turns": last.running,
                "kb_per_turn": (pss_kb(facts.pid) - idle_kb) / turns,
                "missed_beats": last.missed_beats,
                "late_beats": late,
                "idle_mb": idle_kb / 1_024,
                "cpu_percent": 100 * (cpu_s(facts.pid) - used) / seconds,
            }
        )


async def _start(runner: Runner, turns: int, payload: dict[str, int]) -> None:
    links = runner.links
    runs = await record_runs(links.store, links.keys, turns, agent="counter", payload=payload)
    await asyncio.to_thread(links.dispatcher.enqueue, tickets(runs))


async def _watch(runner: Runner, seconds: float) -> tuple[ProcessFacts, int]:
    """The process's last beat, and how many came later than twice their time."""
    (last,) = await runner.workers()
    late, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(WATCH_S)
        (now,) = await runner.workers()
        late += now.last_beat_ms - last.last_beat_ms > 2 * runner.settings.beat_ms
        last = now
    return last, late
