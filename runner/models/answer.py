"""One provider call: its events as UI chunks, its end as a `RoundEnd` or a typed failure.

Rules of this file: a part ends when the stream ends, because pydantic-ai reports an end as soon as another part begins
and may add to the first one later. A stream that never said why it stopped was cut, however politely it closed. Limits
of silence are kept on events: keep-alive bytes do not count. Leaving the generator closes the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.settings import ModelSettings

from runner.core.turn.round import Chunk, Finish, RoundEnd, RoundRequest
from runner.errors import ModelInterrupted
from runner.models.faults import FAULTS, fault_of
from runner.models.parts import OpenParts
from runner.models.prompt import to_prompt

_FINISHES: Mapping[str | None, Finish] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_call": "tool-calls",
    "error": "error",
}


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long a call may be silent, in seconds (None is off), and whether its end must carry the provider's own
    reason."""

    first_event_s: float | None
    idle_s: float | None
    require_raw_finish: bool


async def answer(
    model: Model, request: RoundRequest, settings: ModelSettings, limits: CallLimits
) -> AsyncGenerator[Chunk | RoundEnd, None]:
    """Chunks of the parts, then one `RoundEnd`. ModelRejected, ModelRetryable or ModelInterrupted, after the chunks
    that close the parts the failure left open."""
    prompt = to_prompt(request)
    parts = OpenParts(request.round_id, prompt.held)
    try:
        async with AsyncExitStack() as call:
            deadline = _deadline(limits.first_event_s)
            async with asyncio.timeout_at(deadline):
                stream = await call.enter_async_context(
                    model_request_stream(model, prompt.messages, model_settings=settings)
                )
            async for event in _events(stream, deadline, limits.idle_s):
                for chunk in parts.chunks(event):
                    yield chunk
            response = stream.get()
    except FAULTS as error:
        fault = fault_of(error, began=parts.began)
        fault.__cause__ = error
    else:
        if _told_why(response, limits):
            for chunk in parts.end(response):
                yield chunk
            yield _round_end(response, settings)
            return
        fault = ModelInterrupted("the provider's stream ended without saying why")
    for chunk in parts.cut():
        yield chunk
    raise fault


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


async def _events(
    stream: StreamedResponse, deadline: float | None, idle_s: float | None
) -> AsyncIterator[ModelResponseStreamEvent]:
    """The events, each within its time limit; the time a slow consumer takes is not counted."""
    events = aiter(stream)
    while True:
        async with asyncio.timeout_at(deadline):
            event = await anext(events, None)
        if event is None:
            return
        yield event
        deadline = _deadline(idle_s)


def _raw_finish(response: ModelResponse) -> str | None:
    raw = (response.provider_details or {}).get("finish_reason")
    return None if raw is None else str(raw)


def _told_why(response: ModelResponse, limits: CallLimits) -> bool:
    return _raw_finish(response) is not None or not limits.require_raw_finish


def _round_end(response: ModelResponse, settings: ModelSettings) -> RoundEnd:
    usage, raw = response.usage, _raw_finish(response)
    cap = cast("Mapping[str, Any]", settings).get("max_tokens")
    return RoundEnd(
        finish=_FINISHES.get(response.finish_reason, "other"),
        raw_finish=raw,
        complete=response.state == "complete" and raw is not None,
        capped=response.finish_reason == "length" or bool(cap and usage.output_tokens >= cap),
        input_tokens=usage.input_tokens or None,
        output_tokens=usage.output_tokens or None,
    )
