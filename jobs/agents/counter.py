"""counter: counts to n at a pace; the joined text shows at a glance whether anything was lost or doubled.

Input: `{"n": 200, "pace_ms": 20}`. One text delta per number ("0 ", "1 ", ..), one text part per attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pydantic import BaseModel, ConfigDict, Field

from runner.agent import TurnContext


class Count(BaseModel):
    """What to count to, and how fast."""

    model_config = ConfigDict(extra="forbid")

    n: int = Field(default=200, ge=0, le=1_000_000)
    pace_ms: float = Field(default=20, ge=0, le=60_000)


async def counter(ctx: TurnContext) -> AsyncIterator[str]:
    """Counts on from the last number that is durable."""
    count = Count.model_validate(ctx.input or {})
    for number in range(len(ctx.text.split()), count.n):
        yield f"{number} "
        if count.pace_ms:
            await asyncio.sleep(count.pace_ms / 1_000)
