"""Following a run to its end: `tail`, and the second half of `submit --tail`.

Rules of this file: what is written is what was read, in order; a new attempt, a wait and the end are said, so that no
silence is left unexplained.
"""

from __future__ import annotations

import asyncio
import contextlib
from argparse import Namespace
from typing import Protocol

from runner.client import Runner
from runner.core.run import State
from runner.engine.tailing import TailItem
from runner.errors import RunnerError
from runner.process.cli.connecting import with_runner
from runner.process.cli.crew import read_workers
from runner.process.cli.printing import remark, say, say_json

SILENCE_S = 2.0
"""After so long without a chunk, a person is told what a queued run waits for."""


class Writer(Protocol):
    """Writes what a tail gives; `seq` is the last seq it wrote."""

    seq: int

    def write(self, item: TailItem) -> None:
        """Writes one item and flushes it."""
        ...


class JsonLines:
    """One JSON object a line: the chunks, then the terminal."""

    def __init__(self, after: int = 0) -> None:
        self.seq = after

    def write(self, item: TailItem) -> None:
        """As `Writer.write`."""
        if item.terminal is not None:
            say_json({"terminal": item.terminal.model_dump(mode="json")})
        else:
            say_json({"seq": item.seq, "epoch": item.epoch, "chunk": item.chunk})
        self.seq = item.seq


class PlainText:
    """The text as it comes, with a line of its own for a new attempt and for the end."""

    def __init__(self, after: int = 0) -> None:
        self.seq = after
        self._epoch = 0
        self._half = ""
        self._line_is_open = False

    def write(self, item: TailItem) -> None:
        """As `Writer.write`."""
        if 0 < self._epoch < item.epoch:
            self._mark(f"[attempt {item.epoch} continues]")
        self._epoch, self.seq = item.epoch, item.seq
        if item.terminal is not None:
            error = f": {' '.join(item.terminal.error.split())}" if item.terminal.error else ""
            self._mark(f"[{item.terminal.state}: {item.terminal.reason}{error}]")
            return
        match item.chunk:
            case {"type": "text-delta", "delta": str(delta)}:
                self._text(delta)
            case {"type": "reset-step"}:
                self._mark("[the unfinished step is asked again]")
            case _:
                pass

    def _text(self, delta: str) -> None:
        text = self._half + delta
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""  # its other half is in the next delta
        text = text.removesuffix(self._half).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if text:
            say(text, end="")
            self._line_is_open = not text.endswith("\n")

    def _mark(self, line: str) -> None:
        say(f"\n{line}" if self._line_is_open else line)
        self._line_is_open = False
        self._half = ""


def run_tail(arguments: Namespace) -> int:
    """Follows a run."""
    writer = make_writer(as_json=arguments.json, after=arguments.after)
    return with_runner(lambda runner: follow(runner, arguments.run_id, writer, advise=not arguments.json))


def make_writer(*, as_json: bool, after: int = 0) -> Writer:
    """The writer for programs or for people, starting behind the seq `after`."""
    return JsonLines(after) if as_json else PlainText(after)


async def follow(runner: Runner, run_id: str, writer: Writer, *, advise: bool) -> int:
    """Writes a run from the writer's seq to its end; 0 when it completed, else 1. `advise` says what it waits for."""
    watching = asyncio.create_task(_watch_silence(runner, run_id, writer)) if advise else None
    completed = False
    try:
        async for item in runner.tail(run_id, after=writer.seq):
            writer.write(item)
            completed = item.terminal is not None and item.terminal.state is State.COMPLETED
    finally:
        while watching is not None and not watching.done():
            watching.cancel()  # Python 3.11 may lose a cancel that meets a command just sent: it is asked again
            await asyncio.wait([watching], timeout=0.1)
    return 0 if completed else 1


async def _watch_silence(runner: Runner, run_id: str, writer: Writer) -> None:
    said = ""
    while True:
        seq = writer.seq
        await asyncio.sleep(SILENCE_S)
        if writer.seq != seq:
            said = ""
            continue
        with contextlib.suppress(RunnerError):  # it is advice: the tail itself says what is wrong
            why = await _why_silent(runner, run_id)
            if why and why != said:
                remark(why)
            said = why


async def _why_silent(runner: Runner, run_id: str) -> str:
    record = (await runner.get(run_id)).record
    if record.state is not State.QUEUED:
        return ""
    crew = await read_workers(runner.links)
    if not crew.alive:
        return (
            "waiting for a worker ... none is alive: start one with `runner worker`, "
            "or everything with `runner up`, in another terminal"
        )
    if crew.free <= 0:
        return f"waiting for a worker ... all {crew.capacity} places are taken: it starts when one is free"
    return f"waiting for a worker ... {len(crew.alive)} alive"
