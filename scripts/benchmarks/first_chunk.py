"""first-chunk: from the call of submit to the first text in the client's hand.

Compared by turns, one sample of each after the other, on one server with both workers up:
  ours  `Runner.submit`, then `Runner.tail` to the first text delta; a pool of one process and a supervisor
  rq    a stock RQ fork worker whose job XADDs one entry; the client is blocked in XREAD before it enqueues
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import ExitStack, aclosing

from benchmarks.measure import Metrics, own_server, quantile, rounded, say
from benchmarks.plain_rq import PlainClient
from benchmarks.programs import started
from benchmarks.readiness import workers_ready
from runner.client import Runner

SMOKE = ["--samples", "3"]
WARM_UP = 5
REST_S = 0.02
"""Between samples, so that both workers are waiting again."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--samples", type=int, default=200, help="samples of each side")


def run(options: argparse.Namespace) -> Metrics:
    """Medians and p99 of both sides."""
    with ExitStack() as stack:
        server = stack.enter_context(own_server())
        for program in (("pool", 1), ("supervisor",), ("plain-rq-worker",)):
            stack.enter_context(started(server.url, *program))
        return asyncio.run(_run(server.url, options.samples))


async def _run(url: str, samples: int) -> Metrics:
    plain = PlainClient(url)
    ours: list[float] = []
    submits: list[float] = []
    rq: list[float] = []
    async with Runner.from_url(url) as runner:
        await workers_ready(runner, 1)
        for number in range(WARM_UP + samples):
            first, submit = await _ours(runner)
            await asyncio.sleep(REST_S)
            theirs = await asyncio.to_thread(plain.first_entry, f"plain:{number}", time.perf_counter)
            await asyncio.sleep(REST_S)
            if number >= WARM_UP:
                ours.append(first * 1_000)
                submits.append(submit * 1_000)
                rq.append(theirs * 1_000)
            if number % 50 == 0:
                say(f"sample {number}: ours {first * 1_000:.1f} ms, stock RQ {theirs * 1_000:.1f} ms")
    plain.close()
    return rounded(
        {
            "p50_ms": quantile(ours, 0.5),
            "p99_ms": quantile(ours, 0.99),
            "rq_fork_p50_ms": quantile(rq, 0.5),
            "rq_fork_p99_ms": quantile(rq, 0.99),
            "submit_p50_ms": quantile(submits, 0.5),
            "samples": samples,
        }
    )


async def _ours(runner: Runner) -> tuple[float, float]:
    """Seconds to the first text, and to the return of submit."""
    began = time.perf_counter()
    submitted = await runner.submit("echo", "hello")
    submit, first = time.perf_counter() - began, 0.0
    async with aclosing(runner.tail(submitted.run_id)) as items:  # type: ignore[type-var]
        async for item in items:
            if not first and item.chunk is not None and item.chunk["type"] == "text-delta":
                first = time.perf_counter() - began
    assert first, "the run ended without a text"
    return first, submit
