"""sweep: what a supervisor's sweep costs with 1,000 and with 100,000 healthy runs, when the same few are due.

Both populations are real records, made and claimed through the store's calls on leases of an hour, on a server each;
sweeps alternate between them. Before each sweep the same number of runs is marked as due; all are found healthy and
put back, so every sweep does the same work. CPU is that of this process, in which `sweep` runs as in a supervisor.
`ratio_100k_1k` near 1 says that a sweep costs what is due, not what exists.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.measure import BenchServer, Metrics, cpu_s, median, own_server, rounded, say
from benchmarks.runs import claim_runs, record_runs
from runner.bootstrap import close_links, make_links
from runner.engine.runtime import Links
from runner.engine.supervision import sweep
from runner.settings import load_settings
from runner.store import calls
from runner.store.keys import RunKeys

SMOKE = ["--few", "20", "--many", "200", "--due", "5", "--sweeps", "3"]
WARM_UP = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--few", type=int, default=1_000, help="runs of the small population")
    parser.add_argument("--many", type=int, default=100_000, help="runs of the large population")
    parser.add_argument("--due", type=int, default=50, help="runs that are due at each sweep")
    parser.add_argument("--sweeps", type=int, default=100, help="sweeps of each population")


def run(options: argparse.Namespace) -> Metrics:
    """Medians of a sweep's CPU and wall time for both populations."""
    with ExitStack() as stack:
        few, many = (stack.enter_context(own_server()) for _ in range(2))
        return asyncio.run(_run(few, many, options))


@dataclass(slots=True)
class _Population:
    """A server full of healthy runs, and what its sweeps took."""

    server: BenchServer
    links: Links
    due: list[RunKeys]
    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    server_s: float = 0.0

    async def sweep_once(self) -> None:
        """Marks the due ones and sweeps."""
        await self.links.store.run_many([calls.reschedule(run, 1) for run in self.due])
        server_s, began, used = cpu_s(self.server.pid), time.perf_counter(), time.process_time()
        swept = await sweep(self.links)
        self.cpu_ms.append((time.process_time() - used) * 1_000)
        self.wall_ms.append((time.perf_counter() - began) * 1_000)
        self.server_s += cpu_s(self.server.pid) - server_s
        assert swept.due == len(self.due), f"{swept.due} runs were due, {len(self.due)} had been marked"
        assert swept.enqueued + swept.attempts + swept.sealed == 0, "a healthy run was acted on"


async def _populated(server: BenchServer, count: int, due: int) -> _Population:
    links = make_links(load_settings(redis_url=server.url))
    runs = await record_runs(links.store, links.keys, count)
    await claim_runs(links.store, runs)
    say(f"{count:,} healthy runs are there")
    return _Population(server, links, runs[:due])


async def _run(few_server: BenchServer, many_server: BenchServer, options: argparse.Namespace) -> Metrics:
    few = await _populated(few_server, options.few, options.due)
    many = await _populated(many_server, options.many, options.due)
    for number in range(WARM_UP + options.sweeps):
        if number == WARM_UP:
            for population in (few, many):
                population.cpu_ms, population.wall_ms, population.server_s = [], [], 0.0
        for population in (few, many) if number % 2 else (many, few):  # neither always finds the caches warm
            await population.sweep_once()
    for population in (few, many):
        await close_links(population.links)
    return rounded(
        {
            "ratio_100k_1k": median(many.cpu_ms) / median(few.cpu_ms),
            "cpu_ms_1k": median(few.cpu_ms),
            "cpu_ms_100k": median(many.cpu_ms),
            "ms_1k": median(few.wall_ms),
            "ms_100k": median(many.wall_ms),
            "server_cpu_ms_1k": few.server_s * 1_000 / options.sweeps,
            "server_cpu_ms_100k": many.server_s * 1_000 / options.sweeps,
            "due": options.due,
        }
    )
