"""The agents that the benchmarks run: two of the examples, and one whose steps leave a trace outside.

Rule of this file: what the steps did is a line in a file per act, written with one system call, so that it survives
whatever kills the process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from jobs.agents.counter import counter
from jobs.agents.echo import echo
from runner.agent import Agents, TurnContext

agents = Agents()
agents.turn("counter")(counter)
agents.turn("echo")(echo)


@agents.turn("steps")
async def steps(ctx: TurnContext) -> AsyncIterator[str]:
    """Counts like `counter`, each number by a memoised step that writes down when it ran and when it had returned.

    Input: `{"n": 40, "pace_ms": 50, "trace": "/file"}`; a line is: run id, step, attempt, "ran" or "returned".
    """
    n, pace_s, trace = int(ctx.input["n"]), ctx.input["pace_ms"] / 1_000, Path(ctx.input["trace"])
    said = len(ctx.text.split())
    for number in range(n):

        def act(number: int = number) -> int:
            write_line(trace, f"{ctx.run_id} {number} {ctx.attempt} ran")
            return number

        value = await ctx.step(f"step-{number}", act)
        write_line(trace, f"{ctx.run_id} {number} {ctx.attempt} returned")
        if number >= said:
            yield f"{value} "
            await asyncio.sleep(pace_s)


def write_line(path: Path, line: str) -> None:
    """Appends one line, whole, whoever else writes."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)
