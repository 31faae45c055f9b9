"""Readers of the recover benchmark: one for each run, and each trusts nothing.

Rules of this file: a reader tails its run from the start and checks each seq against the one before; the text must
count from 0 to n - 1, so that a chunk stored twice under two seqs is seen as well; it notes when it first saw text of
an epoch.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from runner.client import Runner
from runner.core.run import State

STEP_PACE_MS = 50
BUDGETS_OFF: dict[str, Any] = {"lost_workers": None, "attempts": None}


@dataclass(slots=True)
class Reading:
    """What one reader saw."""

    run_id: str
    n: int
    last_seq: int = 0
    seqs_lost: int = 0
    seqs_again: int = 0
    text: list[str] = field(default_factory=list)
    text_at: dict[int, float] = field(default_factory=dict)
    """When text of each epoch came first, on the monotonic clock."""
    ended: State | None = None
    error: str = ""

    def take(self, seq: int, epoch: int, chunk: dict[str, Any]) -> None:
        """One chunk."""
        if seq <= self.last_seq:
            self.seqs_again += 1
        else:
            self.seqs_lost += seq - self.last_seq - 1
            self.last_seq = seq
        if chunk["type"] == "text-delta":
            self.text.append(chunk["delta"])
            self.text_at.setdefault(epoch, time.monotonic())

    def text_after(self, epoch: int) -> float | None:
        """When the first text of a later epoch came."""
        return min((at for seen, at in self.text_at.items() if seen > epoch), default=None)

    @property
    def lost(self) -> int:
        """Seqs that never came, and numbers missing from the text."""
        return self.seqs_lost + len(set(range(self.n)) - set(self._numbers()))

    @property
    def duplicated(self) -> int:
        """Seqs that came again, and numbers that stand in the text twice or out of order."""
        numbers = self._numbers()
        disorder = sum(after <= before for before, after in pairwise(numbers))
        return self.seqs_again + disorder

    def _numbers(self) -> list[int]:
        return [int(word) for word in "".join(self.text).split()]


class Load:
    """Keeps so many runs going: each that ends is followed by a new one, until it is told to stop."""

    def __init__(
        self, runner: Runner, trace: Path, *, counters: int, steppers: int, seconds: float, pace_ms: int = 20
    ) -> None:
        self.readings: list[Reading] = []
        self._runner, self._trace = runner, trace
        self._counters, self._steppers = counters, steppers
        self._seconds, self._pace_ms = seconds, pace_ms
        self._stop = False
        self._feeding: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Submits the first runs, with their ends spread over the length of a run."""
        kinds = ["counter"] * self._counters + ["steps"] * self._steppers
        self._feeding = [
            asyncio.create_task(self._feed(kind, first=(at + 1) / len(kinds))) for at, kind in enumerate(kinds)
        ]

    async def drain(self) -> None:
        """Submits no more and returns when every run has ended."""
        self._stop = True
        await asyncio.gather(*self._feeding)

    def active(self) -> dict[str, Reading]:
        """The readers whose run has not ended, by run id."""
        return {reading.run_id: reading for reading in self.readings if reading.ended is None and not reading.error}

    async def _feed(self, kind: str, *, first: float) -> None:
        seconds = self._seconds * first
        while not self._stop:
            await self._one(kind, seconds)
            seconds = self._seconds

    async def _one(self, kind: str, seconds: float) -> None:
        pace_ms = self._pace_ms if kind == "counter" else STEP_PACE_MS
        n = max(3, int(seconds * 1_000 / pace_ms))
        payload: dict[str, Any] = {"n": n, "pace_ms": pace_ms}
        if kind == "steps":
            payload["trace"] = str(self._trace)
        submitted = await self._runner.submit(kind, input=payload, budgets=BUDGETS_OFF)
        reading = Reading(submitted.run_id, n)
        self.readings.append(reading)
        try:
            await _read(self._runner, reading)
        except Exception as why:  # noqa: BLE001 - a reader that broke is a result, and the others go on
            reading.error = f"{type(why).__name__}: {why}"


async def _read(runner: Runner, reading: Reading) -> None:
    async for item in runner.tail(reading.run_id):
        if item.chunk is not None:
            reading.take(item.seq, item.epoch, item.chunk)
        elif item.terminal is not None:
            reading.ended = item.terminal.state


@dataclass(frozen=True, slots=True)
class StepCount:
    """What the trace of all steps says."""

    steps: int
    run_twice: int
    """Steps that a later attempt ran although an earlier one had been given their result: must be 0."""
    interrupted: int
    """Steps that ran again because their attempt was killed before the result was stored, which may happen."""


def count_steps(trace: Path) -> StepCount:
    """Reads the trace that the `steps` agent left."""
    ran: dict[tuple[str, str], list[int]] = {}
    returned: dict[tuple[str, str], int] = {}
    for line in trace.read_text(encoding="ascii").splitlines() if trace.exists() else ():
        run_id, step, attempt, what = line.split()
        if what == "ran":
            ran.setdefault((run_id, step), []).append(int(attempt))
        else:
            returned[run_id, step] = min(int(attempt), returned.get((run_id, step), int(attempt)))
    again = {key for key, attempts in ran.items() if len(attempts) > 1}
    twice = {key for key in again if key in returned and max(ran[key]) > returned[key]}
    return StepCount(len(ran), len(twice), len(again - twice))
