"""What the benchmarks share: a server of their own, clocks of processes, medians, and plain words on the way.

Rules of this file: a server is the product's own embedded one (AOF, synced every second) in a directory that goes with
it. Its log is not rewritten while it is measured, or a fork in the background would hit one side of a comparison.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from runner.process.embedded import start_or_attach

Metrics = dict[str, int | float]

_TICK_S = 0.005


def say(text: str) -> None:
    """One line of progress for a person."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which the share `q` of the others lies; NaN of nothing."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


def median(values: Sequence[float]) -> float:
    """The middle value; NaN of nothing."""
    return statistics.median(values) if values else float("nan")


def rounded(metrics: Metrics) -> Metrics:
    """Metrics as they are printed: two digits behind the point, four below 1; what could not be had is -1."""
    return {name: _rounded(value) for name, value in metrics.items()}


def _rounded(value: float) -> int | float:
    if isinstance(value, int):
        return value
    return -1 if math.isnan(value) else round(value, 4 if abs(value) < 1 else 2)


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A server that nothing else uses."""

    url: str
    pid: int


@contextmanager
def own_server() -> Iterator[BenchServer]:
    """A fresh server for the length of a `with` block; its data goes with it."""
    directory = Path(tempfile.mkdtemp(prefix="tr-bench-"))
    server = start_or_attach(directory, timeout_s=30, linger_s=0)
    try:
        with redis.Redis.from_url(server.url) as client:
            client.config_set("auto-aof-rewrite-percentage", 0)
        yield BenchServer(server.url, server.pid)
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process and its threads have used, in the kernel and outside."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def pss_kb(pid: int) -> int:
    """Memory of a process in KiB, with its part of what it shares (Linux); resident memory elsewhere."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return int(psutil.Process(pid).memory_info().rss) // 1_024
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


async def until(predicate: Callable[[], object], seconds: float, what: str) -> None:
    """Waits for a condition; TimeoutError names it."""
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds:g} s")
        await asyncio.sleep(_TICK_S)


def environment(url: str, **settings: str | int) -> dict[str, str]:
    """The environment of a program that works on the server at `url`: nothing of the caller's own configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNNER_")}
    named = {f"RUNNER_{name.upper()}": str(value) for name, value in settings.items()}
    return {**kept, "RUNNER_REDIS_URL": url, "RUNNER_AGENTS": "benchmarks.agents:agents", **named}
