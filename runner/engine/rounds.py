"""Model turns: one request to the model per round, its chunks written as they come.

Rules of this file: a partial answer is continued where the model can, otherwise the unfinished step is dropped on every
reader and asked again; an answer that stops without saying why was interrupted, never finished.
"""

from __future__ import annotations

from contextlib import aclosing

from runner.agent import Agent, Model
from runner.core.turn.round import RoundEnd, RoundRequest
from runner.engine import history
from runner.engine.context import Context
from runner.errors import MissingExtra, ModelInterrupted


async def answer(agent: Agent, ctx: Context) -> str:
    """Runs the rounds of a model agent; returns the finish reason. Raises a ModelError."""
    if ctx.fold.finished_steps:
        return "stop"
    await history.prepare(agent, ctx)
    await agent.before_turn(ctx)
    model = resolve(agent.make_model())
    continuing = model.continues_partial and bool(ctx.fold.step_text())
    if ctx.fold.has_step_parts() and not continuing:
        await ctx.reset_step()  # reasoning alone too: it is not shown to the model, so it would come a second time
    request = RoundRequest(
        round_id=f"r{ctx.epoch}",
        messages=[*ctx.messages, *([ctx.partial] if continuing else [])],
        instructions=agent.instructions,
        settings=agent.model_settings,
    )
    end = await _one_round(model, request, ctx)
    await ctx.end_step()
    return end.finish


async def _one_round(model: Model, request: RoundRequest, ctx: Context) -> RoundEnd:
    async with aclosing(model.stream(request)) as stream:
        async for item in stream:
            if isinstance(item, RoundEnd):
                if not item.complete:
                    raise ModelInterrupted("the provider's stream ended without a finish reason")
                return item
            await ctx.emit(item)
    raise ModelInterrupted("the provider's stream ended without a finish")


def resolve(model: Model | str) -> Model:
    """A model object; a name is looked up through pydantic-ai, and is not trusted to go on from a partial answer: few
    hosted models do. Raises MissingExtra when pydantic-ai is not installed."""
    if not isinstance(model, str):
        return model
    try:
        from runner.models.pydantic_ai import PydanticAIModel
    except ImportError:
        raise MissingExtra("pydantic-ai", "pip install 'turnrunner[pydantic-ai]'") from None
    return PydanticAIModel(model, continues_partial=False)
