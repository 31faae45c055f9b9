"""Reading the answer of a model in tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from runner.core.turn.round import Chunk, RoundEnd, RoundRequest
from runner.errors import ModelError


class Streaming(Protocol):
    continues_partial: bool

    def stream(self, request: RoundRequest) -> AsyncGenerator[Chunk | RoundEnd, None]: ...


class Answer:
    """Everything one request gave: chunks, the end if it came, the error if one was raised."""

    def __init__(self, items: Sequence[Chunk | RoundEnd], error: ModelError | None) -> None:
        self.chunks = [item for item in items if isinstance(item, dict)]
        ends = [item for item in items if isinstance(item, RoundEnd)]
        assert not ends or (len(ends) == 1 and items[-1] is ends[0]), "one RoundEnd at most, and last"
        self.end, self.error = (ends[0] if ends else None), error

    def text(self, kind: str = "text") -> str:
        return "".join(chunk["delta"] for chunk in self.chunks if chunk["type"] == f"{kind}-delta")

    def types(self) -> list[str]:
        return [chunk["type"] for chunk in self.chunks]


async def read(model: Streaming, request: RoundRequest) -> Answer:
    items: list[Chunk | RoundEnd] = []
    try:
        async with aclosing(model.stream(request)) as stream:
            async for item in stream:
                items.append(item)  # noqa: PERF401  (what came before an error counts)
    except ModelError as error:
        return Answer(items, error)
    return Answer(items, None)


def asked(text: str = "Tell me.", partial: str | None = None, *parts: dict[str, Any], **fields: Any) -> RoundRequest:
    """A request with one user message, and a partial answer after it."""
    messages: list[dict[str, Any]] = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}]
    if partial is not None:
        held = [{"type": "step-start"}, {"type": "text", "text": partial, "state": "streaming"}]
        messages.append({"id": "a1", "role": "assistant", "parts": [*held, *parts]})
    return RoundRequest(**{"round_id": "r1", "messages": messages, **fields})
