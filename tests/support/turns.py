"""Turns that behave badly, for workers of tests: they exit, block, refuse to stop, raise, and count how often they ran.

Rule of this file: a turn that waits does so for a file that the test makes, named by its input, so that the test
decides how long it lasts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from jobs.agents.counter import counter
from jobs.agents.echo import echo
from runner.agent import Agents, TurnContext
from tests.support.waiting import until, until_async

agents = Agents()
agents.turn("counter")(counter)
agents.turn("echo")(echo)

PATIENCE_S = 60.0

if os.environ.get("TURNS_DIE_AT_FORK"):
    os.register_at_fork(after_in_child=lambda: os._exit(7))


@agents.turn("noted")
async def noted(ctx: TurnContext) -> AsyncIterator[str]:
    """Adds a line to the file for each time its body starts, then waits for `<file>.go`."""
    path = Path(ctx.input)
    _add_line(path, ctx.run_id)
    yield "started "
    await until_async(partial(asyncio.to_thread, path.with_suffix(".go").exists), PATIENCE_S)
    yield "done "


def _add_line(path: Path, line: str) -> None:
    with path.open("a", encoding="ascii") as book:
        book.write(f"{line}\n")


@agents.turn("waits")
async def waits(ctx: TurnContext) -> AsyncIterator[str]:
    """Says a word and then nothing, for ever."""
    if ctx.attempt == 1:
        yield "waiting "
    await asyncio.Event().wait()


@agents.turn("stubborn")
async def stubborn(ctx: TurnContext) -> AsyncIterator[str]:
    """Its first attempt ignores every cancellation."""
    yield f"attempt{ctx.attempt} "
    while ctx.attempt == 1:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@agents.turn("stuck")
async def stuck(ctx: TurnContext) -> AsyncIterator[str]:
    """Its first attempt blocks the event loop until the file is there, and then writes on."""
    yield f"attempt{ctx.attempt} "
    await ctx.flush()
    if ctx.attempt == 1:
        until(Path(ctx.input).exists, PATIENCE_S)
        yield "zombie "


@agents.turn("threaded")
async def threaded(ctx: TurnContext) -> AsyncIterator[str]:
    """Blocks in a step, off the event loop, until the file is there."""
    yield f"attempt{ctx.attempt} "
    yield f"{await ctx.step('wait', lambda: until(Path(ctx.input).exists, PATIENCE_S))} "


@agents.turn("raises")
async def raises(ctx: TurnContext) -> AsyncIterator[str]:
    """Fails after a word."""
    yield "trying "
    raise ValueError("no luck")


@agents.turn("exits")
async def exits(ctx: TurnContext) -> AsyncIterator[str]:
    """Its first attempt ends its process with the code that is its input."""
    yield f"attempt{ctx.attempt} "
    await ctx.flush()
    if ctx.attempt == 1:
        os._exit(ctx.input)


@agents.turn("burns")
async def burns(ctx: TurnContext) -> AsyncIterator[str]:
    """Says a word and then burns the CPU for ever, without a boundary."""
    yield "burning "
    await ctx.flush()
    while True:
        pass


@agents.turn("quits")
async def quits(ctx: TurnContext) -> AsyncIterator[str]:
    """Raises what would end a program, as a careless library does."""
    yield "trying "
    raise SystemExit(3) if ctx.input == "SystemExit" else KeyboardInterrupt


@agents.turn("poison")
async def poison(ctx: TurnContext) -> AsyncIterator[str]:
    """Every attempt kills its process."""
    yield f"attempt{ctx.attempt} "
    await ctx.flush()
    os.kill(os.getpid(), signal.SIGKILL)
