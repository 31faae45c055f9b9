"""turns: whole turns per second through one worker process, and what a chunk costs it.

200-chunk `counter` turns without a pace, 50 at a time, all put on the queue in one trip, so that no client runs while
they are measured. `us_per_chunk` is CPU time of the worker process (all its threads: turns, RQ's loop, heart) per
chunk; `server_us_per_chunk` that of the server.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import ExitStack

from benchmarks.measure import BenchServer, Metrics, cpu_s, median, own_server, rounded, say
from benchmarks.programs import started
from benchmarks.readiness import all_ended, workers_ready
from benchmarks.runs import record_runs, records, tickets
from runner.client import Runner
from runner.core.run import State
from runner.store import reads

SMOKE = ["--turns", "4", "--rounds", "1", "--chunks", "20"]
WARM_UP = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--turns", type=int, default=400, help="turns of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunks", type=int, default=200, help="text chunks of a turn")
    parser.add_argument("--concurrency", type=int, default=50)


def run(options: argparse.Namespace) -> Metrics:
    """Turns per second and CPU per chunk; medians of the rounds."""
    with ExitStack() as stack:
        server = stack.enter_context(own_server())
        stack.enter_context(started(server.url, "pool", 1, concurrency=options.concurrency))
        return asyncio.run(_run(server, options))


async def _run(server: BenchServer, options: argparse.Namespace) -> Metrics:
    rates, worker_us, server_us = [], [], []
    async with Runner.from_url(server.url) as runner:
        (facts,) = await workers_ready(runner, 1)
        await _round(runner, WARM_UP, options.chunks)
        for number in range(options.rounds):
            used, server_used = cpu_s(facts.pid), cpu_s(server.pid)
            taken_s = await _round(runner, options.turns, options.chunks)
            chunks = options.turns * options.chunks
            rates.append(options.turns / taken_s)
            worker_us.append((cpu_s(facts.pid) - used) / chunks * 1e6)
            server_us.append((cpu_s(server.pid) - server_used) / chunks * 1e6)
            say(f"round {number + 1}: {rates[-1]:.0f} turns/s, {worker_us[-1]:.0f} us of worker CPU per chunk")
    return rounded(
        {
            "turns_per_s": median(rates),
            "us_per_chunk": median(worker_us),
            "server_us_per_chunk": median(server_us),
            "chunks_per_s": round(median(rates) * options.chunks),
        }
    )


async def _round(runner: Runner, turns: int, chunks: int) -> float:
    """Seconds of the server's clock from the enqueue to the last end."""
    links = runner.links
    payload = {"n": chunks, "pace_ms": 0}
    runs = await record_runs(links.store, links.keys, turns, agent="counter", payload=payload)
    began_ms = await links.store.run(reads.read_time())
    await asyncio.to_thread(links.dispatcher.enqueue, tickets(runs))
    await all_ended(runner)
    ended = await records(links, runs)
    assert all(record.state is State.COMPLETED and record.attempts == 1 for record in ended), "a turn did not complete"
    return (max(record.ended_at for record in ended) - began_ms) / 1_000
