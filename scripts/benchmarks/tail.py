"""tail: how late a chunk reaches its readers, with 1,000 tails on 100 runs.

One process holds all tails (`Runner.tail`, so one blocking connection); another appends 5 chunks a second to each run,
through `RunWriter`. The lag is from the emit in the writer to the reader's hand. Every tail checks that seqs come
without a gap and counts what it was given; `missing` must be 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from benchmarks.measure import BenchServer, Metrics, cpu_s, own_server, quantile, rounded, say, until
from benchmarks.programs import Program, started
from runner.client import Runner

SMOKE = ["--runs", "3", "--tails", "6", "--seconds", "0.6"]
SETTLE_S = 120.0
AT_ONCE = 50
"""How many tails are opened at the same moment."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--tails", type=int, default=1_000)
    parser.add_argument("--per-s", type=float, default=5.0, help="chunks per second and run")
    parser.add_argument("--seconds", type=float, default=15.0)


def run(options: argparse.Namespace) -> Metrics:
    """The lag of deliveries, and how many there were."""
    with (
        own_server() as server,
        started(server.url, "tail-writer", options.runs, options.per_s, options.seconds) as writer,
    ):
        return asyncio.run(_run(server, writer, options.tails))


@dataclass(slots=True)
class _Seen:
    """What all tails were given."""

    lags_ms: list[float] = field(default_factory=list)
    ready: int = 0
    gaps: int = 0
    chunks: int = 0


async def _run(server: BenchServer, writer: Program, tails: int) -> Metrics:
    run_ids: list[str] = json.loads(await asyncio.to_thread(writer.ask))
    seen = _Seen()
    async with AsyncExitStack() as stack:
        runner = await stack.enter_async_context(Runner.from_url(server.url))
        readers: list[asyncio.Task[None]] = []
        for number in range(tails):
            readers.append(asyncio.create_task(_read(runner, run_ids[number % len(run_ids)], seen)))
            if len(readers) % AT_ONCE == 0 or len(readers) == tails:
                await until(lambda: seen.ready == len(readers), SETTLE_S, "the first chunk at every tail")
        await asyncio.sleep(0.5)  # every tail has joined the live read
        say(f"{tails} tails on {len(run_ids)} runs are live; the writer starts")
        began, used, server_used = time.monotonic(), time.process_time(), cpu_s(server.pid)
        each = int(await asyncio.to_thread(writer.ask, "go"))
        taken = time.monotonic() - began
        used, server_used = time.process_time() - used, cpu_s(server.pid) - server_used
        await asyncio.wait_for(asyncio.gather(*readers), SETTLE_S)
    expected = each * tails
    return rounded(
        {
            "p50_ms": quantile(seen.lags_ms, 0.5),
            "p99_ms": quantile(seen.lags_ms, 0.99),
            "max_ms": max(seen.lags_ms),
            "deliveries": len(seen.lags_ms),
            "deliveries_per_s": len(seen.lags_ms) / taken,
            "missing": expected - seen.chunks,
            "gaps": seen.gaps,
            "reader_cpu_percent": 100 * used / taken,
            "server_cpu_percent": 100 * server_used / taken,
        }
    )


async def _read(runner: Runner, run_id: str, seen: _Seen) -> None:
    last = 0
    async for item in runner.tail(run_id):
        if item.chunk is None:
            return
        now_ns = time.monotonic_ns()
        seen.gaps += item.seq != last + 1
        seen.chunks += 1
        last = item.seq
        if item.seq == 1:
            seen.ready += 1
        else:
            seen.lags_ms.append((now_ns - int(item.chunk["delta"].partition("|")[0])) / 1e6)
