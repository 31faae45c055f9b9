"""The parts of one answer while they stream: provider events in, UI chunks out.

Rules of this file: ids are derived from the round, so that asking again gives the same ones. Every part stays open
until the answer ends. Only texts, thoughts and files are shown; events of other kinds have no chunks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_ai.messages import (
    FilePart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_core import to_jsonable_python

from runner.core.turn.round import Chunk
from runner.models.prompt import METADATA_KEY
from runner.models.seams import SeamTrim, SurrogateJoin, whole_value

_Kind = Literal["text", "reasoning"]


@dataclass(slots=True)
class _OpenPart:
    kind: _Kind
    id: str | None = None
    join: SurrogateJoin = field(default_factory=SurrogateJoin)


class OpenParts:
    """`held` is the white space a continued partial ends with. `began` says whether a chunk was given out."""

    def __init__(self, round_id: str, held: str = "") -> None:
        self._round_id, self._named = round_id, 0
        self._open: dict[int, _OpenPart] = {}
        self._seam = SeamTrim(held)

    @property
    def began(self) -> bool:
        return self._named > 0

    def chunks(self, event: ModelResponseStreamEvent) -> Iterator[Chunk]:
        """The chunks of one event; none for an event that shows nothing."""
        match event:
            case PartStartEvent(index=index, part=TextPart(content=text)):
                yield from self._start(index, "text", text)
            case PartStartEvent(index=index, part=ThinkingPart(content=text)):
                yield from self._start(index, "reasoning", text)
            case PartStartEvent(part=FilePart(content=content)):
                self._name()
                yield {"type": "file", "url": content.data_uri, "mediaType": content.media_type}
            case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
                yield from self._grow(index, "text", text)
            case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=text)):
                yield from self._grow(index, "reasoning", text or "")
            case _:
                pass

    def end(self, response: ModelResponse) -> Iterator[Chunk]:
        """Closes everything, with what the provider wants back on each part."""
        for index, part in list(self._open.items()):
            final = response.parts[index] if index < len(response.parts) else None
            yield from self._close(index, _metadata(final) if part.kind == _kind_of(final) else {})

    def cut(self) -> Iterator[Chunk]:
        """Closes everything after a failure. A cut part carries no signature: it would not be valid."""
        for index in list(self._open):
            yield from self._close(index, {})

    def _start(self, index: int, kind: _Kind, text: str) -> Iterator[Chunk]:
        if index in self._open:
            yield from self._close(index, {})
        self._open[index] = _OpenPart(kind)
        if kind == "reasoning":
            # A redacted thought has no text at all, and still has to go back to its provider.
            yield from self._named_start(self._open[index])
        yield from self._grow(index, kind, text)

    def _grow(self, index: int, kind: _Kind, text: str) -> Iterator[Chunk]:
        part = self._open.get(index)
        if part is None or part.kind != kind:
            yield from self._start(index, kind, text)
        else:
            yield from self._delta(part, part.join.push(text))

    def _delta(self, part: _OpenPart, text: str) -> Iterator[Chunk]:
        text = self._seam.push(text) if part.kind == "text" else text
        if text:
            if part.id is None:
                yield from self._named_start(part)
            yield {"type": f"{part.kind}-delta", "id": part.id, "delta": text}

    def _named_start(self, part: _OpenPart) -> Iterator[Chunk]:
        part.id = self._name()
        yield {"type": f"{part.kind}-start", "id": part.id}

    def _close(self, index: int, metadata: dict[str, Any]) -> Iterator[Chunk]:
        part = self._open.pop(index)
        yield from self._delta(part, part.join.flush())
        if part.id is not None:
            yield {"type": f"{part.kind}-end", "id": part.id, **metadata}

    def _name(self) -> str:
        name = f"{self._round_id}:{self._named}"
        self._named += 1
        return name


def _kind_of(part: object) -> _Kind | None:
    return "text" if isinstance(part, TextPart) else "reasoning" if isinstance(part, ThinkingPart) else None


def _metadata(part: object) -> dict[str, Any]:
    names = ("id", "signature", "provider_name", "provider_details")
    kept = {name: value for name in names if (value := getattr(part, name, None))}
    if not kept:
        return {}
    return {"providerMetadata": {METADATA_KEY: whole_value(to_jsonable_python(kept, fallback=str))}}
