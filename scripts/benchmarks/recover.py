"""recover: kills under load; what was lost or doubled (nothing may be), and how soon the answer went on.

Concurrent runs count aloud, some by memoised steps with side effects, their loss budgets off. They are killed in four
ways, always in the same shares:
  process   SIGKILL of a worker process; the pool's parent sees it
  stop      SIGSTOP of a process past its lease (1 s here) and SIGCONT: it comes back as a zombie
  deploy    SIGTERM of a process: it hands its turns over
  host      SIGKILL of a pool's parent and all its processes, with the default lease of 5 s
and, last, `handover`: SIGTERM of a process with 200 running turns while another process is ready.
Every gap runs from the signal to the next text, of a later attempt, in the hand of the run's reader.
`lost` and `duplicated` count seqs and numbers over all readers; `steps_run_twice` counts steps run again although their
result was stored; `steps_interrupted` those killed between their effect and the store of it, which may run again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fleet import Fleet
from benchmarks.measure import Metrics, own_server, quantile, rounded, say
from benchmarks.readers import Load, Reading, count_steps
from runner.client import Runner
from runner.core.run import State

SMOKE = ["--kills", "4", "--handover-turns", "5", "--counters", "4", "--steppers", "2", "--run-seconds", "1"]
SHARES = {"host": 0.05, "stop": 0.1, "deploy": 0.3}
"""The rest is `process`; each kind comes at least once."""
SHORT_LEASE = {"lease_ms": 1_000, "beat_ms": 200}
STOPPED_S = 1.6
PATIENCE_S = 30.0
_TICK_S = 0.005


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--kills", type=int, default=20, help="kills of all four kinds together, at least 4")
    parser.add_argument("--counters", type=int, default=18, help="runs that count, at a time")
    parser.add_argument("--steppers", type=int, default=6, help="runs of memoised steps, at a time")
    parser.add_argument("--run-seconds", type=float, default=4.0, help="length of a run that nothing hits")
    parser.add_argument("--handover-turns", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="which process is hit")


def run(options: argparse.Namespace) -> Metrics:
    """Counts of everything, and the medians of the gaps that readers saw."""
    with ExitStack() as stack:
        url = stack.enter_context(own_server()).url
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tr-bench-")))
        return asyncio.run(_run(url, folder / "trace", options))


@dataclass(slots=True)
class _Tally:
    """What came of all kills."""

    options: argparse.Namespace
    trace: Path
    kills: dict[str, int] = field(default_factory=dict)
    hits: int = 0
    gaps_ms: dict[str, list[float]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    stuck: int = 0

    def load(self, runner: Runner) -> Load:
        """A load of the sizes asked for."""
        options = self.options
        return Load(
            runner, self.trace, counters=options.counters, steppers=options.steppers, seconds=options.run_seconds
        )


async def _run(url: str, trace: Path, options: argparse.Namespace) -> Metrics:
    tally, chance = _Tally(options, trace), random.Random(options.seed)
    least = 2 if options.kills >= 20 else 1
    shares = {kind: max(least, round(options.kills * share)) for kind, share in SHARES.items()}
    singles = ["process"] * max(1, options.kills - sum(shares.values())) + ["deploy"] * shares["deploy"]
    chance.shuffle(singles)
    began = time.monotonic()
    async with Runner.from_url(url) as runner:
        await _kill_processes(Fleet(url, runner), tally, singles, chance)
        await _kill_processes(Fleet(url, runner, **SHORT_LEASE), tally, ["stop"] * shares["stop"], chance)
        await _kill_hosts(Fleet(url, runner), tally, shares["host"])
        await _hand_over(Fleet(url, runner), tally, options.handover_turns)
    return _metrics(tally, time.monotonic() - began)


async def _kill_processes(fleet: Fleet, tally: _Tally, kinds: list[str], chance: random.Random) -> None:
    """One pool of three processes and a supervisor; one process is hit at a time."""
    async with fleet:
        fleet.add_pool(3)
        load = await _loaded(fleet, tally)
        for number, kind in enumerate(kinds):
            victim = chance.choice(await fleet.busy(2))
            hit = await _running_on(fleet, load, {victim.id})
            began = time.monotonic()
            os.kill(victim.pid, {"process": signal.SIGKILL, "deploy": signal.SIGTERM, "stop": signal.SIGSTOP}[kind])
            if kind == "stop":
                await asyncio.sleep(STOPPED_S)
                os.kill(victim.pid, signal.SIGCONT)
            await _watch(tally, kind, hit, began)
            if number % 10 == 9:
                say(f"{number + 1} of {len(kinds)} single processes were hit")
        await load.drain()
        tally.readings += load.readings


async def _kill_hosts(fleet: Fleet, tally: _Tally, kills: int) -> None:
    """Two pools of two processes stand for two hosts; one is lost at a time, and replaced after its runs went on."""
    async with fleet:
        pools = [fleet.add_pool(2), fleet.add_pool(2)]
        load = await _loaded(fleet, tally)
        for number in range(kills):
            workers = await fleet.busy(4)
            lost = pools.pop(0)
            family = set(lost.family())
            hit = await _running_on(fleet, load, {facts.id for facts in workers if facts.pid in family})
            began = time.monotonic()
            await asyncio.to_thread(lost.kill_all)
            await _watch(tally, "host", hit, began)
            pools.append(fleet.add_pool(2))
            say(f"host {number + 1} of {kills} was lost")
        await load.drain()
        tally.readings += load.readings


async def _hand_over(fleet: Fleet, tally: _Tally, turns: int) -> None:
    """One process runs all the turns; another is ready; the first is told to stop."""
    async with fleet:
        fleet.settings |= {"concurrency": turns}
        first = fleet.add_pool(1)
        (old,) = await fleet.busy(1, running=0)
        seconds = max(3.0, tally.options.run_seconds * 3)
        load = Load(fleet.runner, tally.trace, counters=turns, steppers=0, seconds=seconds, pace_ms=50)
        load.start()
        await fleet.busy(1, running=int(turns * 0.9))
        fleet.add_pool(1)
        await fleet.busy(2, running=0)
        hit = await _running_on(fleet, load, {old.id})
        say(f"handing over {len(hit)} turns")
        began = time.monotonic()
        first.terminate()
        await _watch(tally, "handover", hit, began)
        await load.drain()
        tally.readings += load.readings


async def _loaded(fleet: Fleet, tally: _Tally) -> Load:
    load = tally.load(fleet.runner)
    load.start()
    await fleet.busy(1)
    return load


async def _running_on(fleet: Fleet, load: Load, process_ids: set[str]) -> list[tuple[Reading, int]]:
    """The readers of runs that these processes run, each with the epoch it is at."""
    active = load.active()
    live = await fleet.runner.live_runs(limit=10_000)
    return [
        (active[record.run_id], record.epoch)
        for record in live
        if record.state is State.RUNNING and record.owner in process_ids and record.run_id in active
    ]


async def _watch(tally: _Tally, kind: str, hit: list[tuple[Reading, int]], began: float) -> None:
    """Waits until every run that was hit goes on or has ended, and notes the gaps that their readers saw."""
    tally.kills[kind] = tally.kills.get(kind, 0) + 1
    tally.hits += len(hit)
    deadline = time.monotonic() + PATIENCE_S
    waiting = list(hit)
    while waiting and time.monotonic() < deadline:
        await asyncio.sleep(_TICK_S)
        waiting = [(r, epoch) for r, epoch in waiting if r.text_after(epoch) is None and r.ended is None]
    tally.stuck += len(waiting)
    seen = [reading.text_after(epoch) for reading, epoch in hit]
    tally.gaps_ms.setdefault(kind, []).extend((at - began) * 1_000 for at in seen if at is not None)


def _metrics(tally: _Tally, seconds: float) -> Metrics:
    for reading in tally.readings:
        if reading.error or reading.ended is not State.COMPLETED:
            say(f"run {reading.run_id} did not complete: {reading.error or reading.ended}")
    steps, gaps = count_steps(tally.trace), tally.gaps_ms
    return rounded(
        {
            "kills": sum(count for kind, count in tally.kills.items() if kind != "handover"),
            **{f"kills_{kind}": count for kind, count in tally.kills.items() if kind != "handover"},
            "turns_hit": tally.hits,
            "lost": sum(reading.lost for reading in tally.readings),
            "duplicated": sum(reading.duplicated for reading in tally.readings),
            "completed": sum(reading.ended is State.COMPLETED for reading in tally.readings),
            "runs": len(tally.readings),
            "stuck": tally.stuck,
            "process_p50_ms": quantile(gaps["process"], 0.5),
            "process_max_ms": quantile(gaps["process"], 1.0),
            "host_p50_ms": quantile(gaps["host"], 0.5),
            "host_max_ms": quantile(gaps["host"], 1.0),
            "deploy_p50_ms": quantile(gaps["deploy"], 0.5),
            "deploy_max_ms": quantile(gaps["deploy"], 1.0),
            "stop_p50_ms": quantile(gaps["stop"], 0.5),
            "stop_max_ms": quantile(gaps["stop"], 1.0),
            "handover_p50_ms": quantile(gaps["handover"], 0.5),
            "handover_max_ms": quantile(gaps["handover"], 1.0),
            "handover_turns": len(gaps["handover"]),
            "steps": steps.steps,
            "steps_run_twice": steps.run_twice,
            "steps_interrupted": steps.interrupted,
            "seconds": seconds,
        }
    )
