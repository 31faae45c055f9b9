"""The writer that the tail benchmark follows: many runs at a steady pace, each chunk with the time of its emit.

Rule of this file: it appends as a turn does, through `RunWriter`; the clock is the machine's monotonic one, which every
process of it shares.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.runs import OWNER, claim_runs, record_runs
from runner.bootstrap import make_links
from runner.core.run import Ending, Reason, State
from runner.core.transcript.chunk import encode
from runner.engine.runtime import Links, writer_limits
from runner.engine.writer import AppendPipe, RunWriter
from runner.settings import Settings
from runner.store import calls
from runner.store.answers import Code

GROUPS = 10
"""In how many parts a round over all runs is sent, so that chunks come evenly."""


def write(settings: Settings, *, runs: int, per_s: float, seconds: float) -> int:
    """Says the run ids, waits for a line, writes, and says how many chunks each run got."""
    asyncio.run(_write(settings, runs, per_s, seconds))
    return 0


async def _write(settings: Settings, runs: int, per_s: float, seconds: float) -> None:
    links = make_links(settings)
    made = await record_runs(links.store, links.keys, runs)
    await claim_runs(links.store, made)
    pipe = AppendPipe(links.store, writer_limits(settings))
    writers = [RunWriter(pipe, run, 1, 0, _refused) for run in made]
    for writer in writers:
        await _emit(writer)
        await writer.flush()
    print(json.dumps([run.run_id for run in made]), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    rounds = await _pace(writers, per_s, seconds)
    for writer in writers:
        await writer.flush()
    await pipe.aclose()
    await _finish(links, writers)
    await links.store.aclose()
    print(rounds + 1, flush=True)


async def _pace(writers: list[RunWriter], per_s: float, seconds: float) -> int:
    """Gives every run a chunk `per_s` times a second, a part of the runs at a time. Returns how many each got."""
    rounds = max(1, round(per_s * seconds))
    began = time.monotonic()
    for step in range(rounds * GROUPS):
        for writer in writers[step % GROUPS :: GROUPS]:
            await _emit(writer)
        await asyncio.sleep(max(0.0, began + (step + 1) / (per_s * GROUPS) - time.monotonic()))
    return rounds


async def _emit(writer: RunWriter) -> None:
    stamp = f"{time.monotonic_ns()}|".ljust(150, "x")
    await writer.append(encode({"type": "text-delta", "id": "t1-1", "delta": stamp}), credited=True)


async def _finish(links: Links, writers: list[RunWriter]) -> None:
    ending = Ending(State.COMPLETED, Reason.FINISHED)
    retention_ms = links.settings.retention_ms
    for writer in writers:
        await links.store.run(calls.finish(writer.run, 1, ending, by="owner", owner=OWNER, retention_ms=retention_ms))


def _refused(code: Code | None) -> None:
    raise AssertionError(f"an append was refused: {code}")
