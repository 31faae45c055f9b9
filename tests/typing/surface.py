"""What the public surface promises to a type checker. Checked by mypy in `scripts/check`; never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from runner import Agent, Agents, Runner, SyncRunner, TurnContext
from runner.engine.inspection import Cancelled, RunView
from runner.engine.submit import Submitted
from runner.engine.tailing import TailItem

agents = Agents()


class Helper(Agent):
    """A model agent by name."""

    model = "openai:gpt-5"
    instructions = "Help."


agents.add(Helper)


@agents.turn("import")
async def import_rows(ctx: TurnContext) -> AsyncIterator[str]:
    """A generator turn."""
    rows = await ctx.step("count", lambda: 3)
    assert_type(rows, int)
    await ctx.stash({"rows": rows})
    yield f"{rows} rows"


async def service() -> None:
    """Async use."""
    async with Runner.from_url("redis://localhost") as runner:
        run = await runner.submit("helper", "Where is my order?", idempotency_key="msg-9")
        assert_type(run, Submitted)
        async for item in runner.tail(run.id, after=0):
            assert_type(item, TailItem)
        assert_type(await runner.wait(run.id, timeout_ms=1_000), RunView)
        assert_type(await runner.cancel(run.id), Cancelled)


def threads() -> None:
    """Blocking use."""
    with SyncRunner.from_url("redis://localhost") as runner:
        run = runner.submit("helper", "Hello")
        assert_type(runner.tail(run.id), Iterator[TailItem])
        assert_type(runner.get(run.id), RunView)
