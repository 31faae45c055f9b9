"""One turn that is interrupted in the middle of a sentence, and everything that its reader saw.

Rules of this file: the reader counts and judges nothing; an answer that ended before it could be interrupted is
reported as such, never dressed up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from demonstration.screen import Screen
from runner.client import Runner
from runner.engine.inspection import RunView
from runner.engine.tailing import TailItem
from runner.store.records import Terminal

AGENT = "storyteller"
STRIKE_AFTER_DELTAS = 16
LONGEST_TURN_S = 180.0
_SENTENCE_ENDS = '.!?\n":'


@dataclass
class Reading:
    """What one reader was given, in its order."""

    seqs: list[int] = field(default_factory=list)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    terminal: Terminal | None = None
    text: str = ""
    deltas: int = 0

    def take(self, item: TailItem) -> str:
        """Notes one item; returns the text in it."""
        if item.chunk is None:
            self.terminal = item.terminal
            return ""
        self.seqs.append(item.seq)
        self.chunks.append(item.chunk)
        if item.chunk["type"] != "text-delta":
            return ""
        self.deltas += 1
        delta = str(item.chunk["delta"])
        self.text += delta
        return delta

    @property
    def is_mid_sentence(self) -> bool:
        """Whether at least two words stand since the last end of a sentence."""
        rest = self.text[max(self.text.rfind(mark) for mark in _SENTENCE_ENDS) + 1 :]
        return len(rest.split()) >= 2


@dataclass
class Strike:
    """The signal that was sent, to whom, and when (monotonic seconds)."""

    pid: int
    epoch: int
    at_s: float


@dataclass
class Witnessed:
    """A turn as it was seen: live, by a second reader from the start, and as it is stored."""

    live: Reading
    replay: Reading
    view: RunView
    strike: Strike | None
    strike_to_text_ms: int
    """From the signal to the first text of the next attempt."""
    silence_ms: int
    """Between the last text of the one attempt and the first of the next."""

    @property
    def was_interrupted(self) -> bool:
        """Whether the signal struck a running attempt, so that another had to go on."""
        return self.strike is not None and self.view.record.attempts > 1


class Turn:
    """Submits one turn, shows it live, and sends `number` to the worker process that runs it."""

    def __init__(self, runner: Runner, screen: Screen, number: signal.Signals) -> None:
        self._runner, self._screen, self._number = runner, screen, number
        self._live = Reading()
        self._strike: Strike | None = None
        self._too_late = False
        self._last_text_s = 0.0
        self._strike_to_text_ms = self._silence_ms = -1

    async def watch(self, prompt: str) -> Witnessed:
        """The whole turn. Raises TimeoutError when it takes longer than LONGEST_TURN_S."""
        async with asyncio.timeout(LONGEST_TURN_S):
            run_id = (await self._runner.submit(AGENT, prompt)).run_id
            async for item in self._runner.tail(run_id):
                await self._see(run_id, item)
            replay = Reading()
            async for item in self._runner.tail(run_id, after=0):
                replay.take(item)
            view = await self._runner.get(run_id)
        return Witnessed(self._live, replay, view, self._strike, self._strike_to_text_ms, self._silence_ms)

    async def _see(self, run_id: str, item: TailItem) -> None:
        now_s = time.monotonic()
        delta = self._live.take(item)
        if not delta:
            return
        if self._strike is not None and item.epoch > self._strike.epoch and self._silence_ms < 0:
            self._strike_to_text_ms = round((now_s - self._strike.at_s) * 1_000)
            self._silence_ms = round((now_s - self._last_text_s) * 1_000)
            await self._show_next_owner(run_id)
        self._last_text_s = now_s
        self._screen.text(delta)
        is_time = self._live.deltas >= STRIKE_AFTER_DELTAS and self._live.is_mid_sentence
        if is_time and self._strike is None and not self._too_late:
            await self._strike_now(run_id)

    async def _strike_now(self, run_id: str) -> None:
        record = (await self._runner.get(run_id)).record
        pid = await self._pid_of(record.owner)
        if pid is None:
            self._too_late = True
            return
        self._strike = Strike(pid, record.epoch, time.monotonic())
        os.kill(pid, self._number)
        if self._number is signal.SIGKILL:
            self._screen.struck(
                f"SIGKILL: worker process {pid}, which was writing this sentence, is gone without a word"
            )
        else:
            self._screen.struck(
                f"SIGTERM: worker process {pid} is asked to stop, as a deploy does; it hands the turn over"
            )

    async def _show_next_owner(self, run_id: str) -> None:
        pid = await self._pid_of((await self._runner.get(run_id)).record.owner)
        who = "another worker process" if pid is None else f"worker process {pid}"
        self._screen.goes_on(f"{who} goes on, {self._strike_to_text_ms} ms after the signal")

    async def _pid_of(self, owner: str) -> int | None:
        return next((worker.pid for worker in await self._runner.workers() if worker.id == owner), None)
