"""Provider events as UI chunks: the orders in which providers really send them."""

from __future__ import annotations

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)

from runner.core.turn.round import Chunk
from runner.models.parts import OpenParts


def shown(parts: OpenParts, *events: ModelResponseStreamEvent) -> list[Chunk]:
    return [chunk for event in events for chunk in parts.chunks(event)]


def test_a_part_goes_on_after_its_reported_end() -> None:
    text, thought = TextPart("A"), ThinkingPart("x", signature="s", provider_name="p")
    parts = OpenParts("r1")
    chunks = shown(
        parts,
        PartStartEvent(index=0, part=text),
        PartEndEvent(index=0, part=text),
        PartStartEvent(index=1, part=ThinkingPart("x")),
        PartDeltaEvent(index=1, delta=ThinkingPartDelta(signature_delta="s")),
        PartDeltaEvent(index=0, delta=TextPartDelta("")),
        PartDeltaEvent(index=0, delta=TextPartDelta("B")),
    )
    assert [(chunk["id"], chunk.get("delta")) for chunk in chunks] == [
        ("r1:0", None),
        ("r1:0", "A"),
        ("r1:1", None),
        ("r1:1", "x"),
        ("r1:0", "B"),
    ]
    kept = {"pydantic_ai": {"signature": "s", "provider_name": "p"}}
    assert list(parts.end(ModelResponse(parts=[TextPart("AB"), thought]))) == [
        {"type": "text-end", "id": "r1:0"},
        {"type": "reasoning-end", "id": "r1:1", "providerMetadata": kept},
    ]


def test_a_redacted_thought_has_no_text_and_is_kept() -> None:
    thought = ThinkingPart("", id="redacted_thinking", signature="data", provider_name="anthropic")
    parts = OpenParts("r1")
    assert shown(parts, PartStartEvent(index=0, part=thought)) == [{"type": "reasoning-start", "id": "r1:0"}]
    (end,) = parts.end(ModelResponse(parts=[thought]))
    assert end["providerMetadata"]["pydantic_ai"]["signature"] == "data"


def test_a_cut_thought_carries_no_signature_and_halves_are_not_lost() -> None:
    parts = OpenParts("r1")
    shown(parts, PartStartEvent(index=0, part=ThinkingPart("x\ud83d", signature="s", provider_name="p")))
    assert list(parts.cut()) == [
        {"type": "reasoning-delta", "id": "r1:0", "delta": "\ufffd"},
        {"type": "reasoning-end", "id": "r1:0"},
    ]


def test_a_part_that_changes_its_kind_becomes_another_part() -> None:
    parts = OpenParts("r1")
    chunks = shown(parts, PartStartEvent(index=0, part=TextPart("a")), PartStartEvent(index=0, part=ThinkingPart("b")))
    types = ["text-start", "text-delta", "text-end", "reasoning-start", "reasoning-delta"]
    assert [chunk["type"] for chunk in chunks] == types


def test_files_are_shown_and_calls_are_not() -> None:
    parts, quiet = OpenParts("r1"), OpenParts("r1")
    shown(quiet, PartStartEvent(index=0, part=ToolCallPart("x", "{}")), PartStartEvent(index=1, part=TextPart("")))
    assert not quiet.began
    (chunk,) = shown(parts, PartStartEvent(index=2, part=FilePart(BinaryContent(b"hi", media_type="text/plain"))))
    assert chunk == {"type": "file", "url": "data:text/plain;base64,aGk=", "mediaType": "text/plain"}
    assert parts.began
    assert list(parts.end(ModelResponse(parts=[]))) == []
