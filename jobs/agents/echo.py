"""echo: gives the message back, word by word."""

from __future__ import annotations

from collections.abc import AsyncIterator

from runner.agent import TurnContext


async def echo(ctx: TurnContext) -> AsyncIterator[str]:
    """Says what is left of the message after what earlier attempts said."""
    said = len(ctx.text)
    rest = (ctx.message if ctx.message is not None else str(ctx.input or ""))[said:]
    for at, word in enumerate(rest.split(" ")):
        yield word if at == 0 else f" {word}"
