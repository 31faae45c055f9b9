"""The history that a turn answers: the messages before it, repaired before anybody sees them.

Rules of this file: repair comes first, is stored before `before_turn` and before the provider sees anything, and is
done once: a later attempt reads back what was stored. The author's hook runs here, in the worker; when it fails, the
default repair stands and the failure is reported.
"""

from __future__ import annotations

from runner.agent import Agent
from runner.core.transcript.repair import repair
from runner.core.turn.round import Message
from runner.engine.context import Context
from runner.telemetry import log

_log = log("history")


async def prepare(agent: Agent, ctx: Context) -> None:
    """Gives the turn its history: the submitted messages and the user's text, with every interrupted call settled."""
    stored = ctx.recalled_history()
    messages = [*ctx.messages, *user_message(ctx)] if stored is None else stored
    result = repair(messages, agent.repair_interrupted_tool_part)
    for problem in result.problems:
        _log.warning("transcript.hook-failed", run_id=ctx.run_id, call_id=problem.call_id, why=problem.text)
    if result.touched:
        await ctx.store_history(result.messages)
        _log.info(
            "transcript.repaired",
            run_id=ctx.run_id,
            messages=len(result.touched),
            calls=list(result.repaired),
            inputs=len(result.normalized),
        )
    ctx.messages = result.messages


def user_message(ctx: Context) -> list[Message]:
    """The user's side of the turn as a UI message; empty when the submitted messages say it all."""
    text = ctx.message if ctx.message is not None else str(ctx.input or "")
    if not text and ctx.messages:
        return []
    return [{"id": f"user-{ctx.run_id}", "role": "user", "parts": [{"type": "text", "text": text}]}]
