"""What is taken as a chunk, and why anything else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.transcript.chunk import MAX_DEPTH, Chunk, encode, to_bytes
from runner.core.transcript.chunk_models import TextDelta, ToolInputStart, UnknownChunk, read_chunk
from runner.core.transcript.event_stream import chunks_in, events_in
from runner.core.transcript.part_models import Approval, DynamicToolPart, ToolPart, UnknownPart, read_part
from runner.core.transcript.wire import Refusal, Why, parse_chunk, refusal_of

_SOURCE = {"type": "source", "sourceType": "url", "id": "i", "url": "u"}
_DOCUMENT = {"type": "source", "sourceType": "document", "id": "i", "mediaType": "m", "title": "t", "filename": "f"}
_BY_PROVIDER: dict[str, Any] = {"providerExecuted": True, "providerMetadata": {"p": {"a": [1, {"x": None}]}}}
_OF_TOOL: dict[str, Any] = {**_BY_PROVIDER, "toolCallId": "c", "toolMetadata": {"a": 1}, "dynamic": False}
_CALL: dict[str, Any] = {**_OF_TOOL, "toolName": "t", "title": "T"}
_ASKED: dict[str, Any] = {"inputSchemaInput": None, "reason": "r", "isAutomatic": True, "signature": "s"}
_PARTS = [
    {"type": "text", "text": "x"},
    {"type": "file", "mediaType": "m", "url": "u", "providerReference": {"a": "b"}},
]

FULL: list[Chunk] = [
    {"type": "start", "messageId": "m", "messageMetadata": {"a": 1}},
    {"type": "start-step"},
    {"type": "finish-step"},
    {"type": "reset-step"},
    *({"type": f"{kind}-start", "id": "1", "providerMetadata": {"p": {}}} for kind in ("text", "reasoning")),
    *(
        {"type": f"{kind}-delta", "id": "1", "delta": "d", "providerMetadata": {"p": {}}}
        for kind in ("text", "reasoning")
    ),
    {"type": "text-end", "id": "1", "citations": [{"source": _SOURCE, "startIndex": 1, "citedText": "x"}]},
    {"type": "text-end", "id": "1", "citations": [{"source": _DOCUMENT, "endIndex": 2}]},
    {"type": "reasoning-end", "id": "1", "providerMetadata": {"p": {}}},
    {"type": "tool-input-start", **_CALL, "inputEncoding": "text"},
    {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "x"},
    {"type": "tool-input-available", **_CALL, "input": None},
    {"type": "tool-input-error", **_CALL, "input": "x", "errorText": "e"},
    {"type": "tool-approval-request", "approvalId": "p", "toolCallId": "c", "approvalDescriptor": None, **_ASKED},
    {"type": "tool-approval-response", "approvalId": "p", "approved": False, "reason": "r", **_BY_PROVIDER},
    {"type": "tool-output-available", **_OF_TOOL, "output": None, "preliminary": True},
    {"type": "tool-output-error", **_OF_TOOL, "errorText": "e"},
    {"type": "tool-output-denied", "toolCallId": "c"},
    {"type": "source-url", "sourceId": "s", "url": "u", "title": "t"},
    {"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f"},
    *({"type": kind, "url": "u", "mediaType": "m"} for kind in ("file", "reasoning-file")),
    {"type": "custom", "kind": "a.b"},
    {"type": "steering-message", "id": "1", "parts": _PARTS},
    {"type": "message-metadata", "messageMetadata": None},
    {"type": "finish", "finishReason": "interrupted", "messageMetadata": {}},
    {"type": "abort", "reason": "r"},
    {"type": "error", "errorText": "e"},
    {"type": "data-x", "data": None, "id": "1", "transient": False},
]
_ODD: list[Any] = [
    *(None, 5, "x", True, {}, [], {"a": 1}, {"p": {}}, {"p": None}, {"p": [1]}, 1.5, -1, "json", [{}], [None], "other"),
    *([{"type": "text"}], {"__proto__": 1}, {"constructor": {"prototype": 2}}, {"constructor": 5}, {"a": "b"}, ["x"]),
    *([{"source": {}}], [{"source": _SOURCE, "startIndex": 1.0}], [{"source": _SOURCE, "endIndex": -1}]),
    *([{"source": _SOURCE, "startIndex": 2**53}], [{"source": {**_SOURCE, "type": "x"}}], [{"source": _SOURCE}, 5]),
]


@st.composite
def altered_chunk(draw: st.DrawFn) -> Any:
    """A chunk of any type with up to two fields that are wrong, gone or odd."""
    chunk: dict[str, Any] = dict(draw(st.sampled_from(FULL)))
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(chunk)) if chunk else st.just("type"))
        match draw(st.sampled_from(["drop", "replace", "inner", "add"])):
            case "drop":
                chunk.pop(name, None)
            case "replace":
                chunk[name] = draw(st.sampled_from(_ODD))
            case "inner" if isinstance(chunk.get(name), dict) and chunk[name]:
                chunk[name] = {**chunk[name], min(chunk[name]): draw(st.sampled_from(_ODD))}
            case _:
                chunk["unheard"] = draw(st.sampled_from(_ODD))
    return chunk


altered_chunks = altered_chunk()


@pytest.mark.parametrize("chunk", FULL, ids=lambda chunk: chunk["type"])
def test_every_chunk_of_the_protocol_is_taken_with_keys_that_nobody_knows(chunk: Chunk) -> None:
    whole = {**chunk, "unheard": [None, {"of": 1.5}]}
    assert refusal_of(chunk) is None
    assert parse_chunk(encode(whole)) == whole
    assert parse_chunk(whole) is whole
    view = read_chunk(whole)
    assert not isinstance(view, (Refusal, UnknownChunk))
    assert encode(view.as_json()) == encode(whole)


@pytest.mark.parametrize(
    ("raw", "why", "detail"),
    [
        (b"\xff", Why.NOT_JSON, "not UTF-8"),
        (b'{"type":"start"', Why.NOT_JSON, None),
        ("[" * 100_000, Why.NOT_JSON, None),
        ('{"type":"data-x","data":NaN}', Why.NOT_JSON, None),
        ('{"type":"data-x","data":{"__proto__":1}}', Why.NOT_JSON, None),
        ("5", Why.NOT_AN_OBJECT, ""),
        (None, Why.NOT_AN_OBJECT, ""),
        (["start"], Why.NOT_AN_OBJECT, ""),
        ({}, Why.UNKNOWN_TYPE, ""),
        ({"type": ["start"]}, Why.UNKNOWN_TYPE, ""),
        ({"type": "nobody" * 1_000}, Why.UNKNOWN_TYPE, ("nobody" * 1_000)[:100]),
        ({"type": "text-delta", "id": "1"}, Why.MISSING_FIELD, "delta"),
        ({"type": "start", "messageId": None}, Why.WRONG_VALUE, "messageId"),
        ({"type": "finish", "finishReason": "tired"}, Why.WRONG_VALUE, "finishReason"),
        ({"type": "text-start", "id": "1", "providerMetadata": {"p": {"n": float("inf")}}}, Why.WRONG_VALUE, None),
        ({"type": "data-x", "data": {"__proto__": 1}}, Why.FORBIDDEN_KEY, ""),
        ({"type": "start", "constructor": {"prototype": 1}}, Why.FORBIDDEN_KEY, ""),
        ({"type": "data-x", "data": {5: 1}}, Why.NOT_JSON, None),
        ({"type": "data-x", "data": {1, 2}}, Why.NOT_JSON, "set"),
    ],
)
def test_what_is_refused_says_why(raw: Any, why: Why, detail: str | None) -> None:
    refused = parse_chunk(raw)
    assert isinstance(refused, Refusal)
    assert refused.why is why
    assert detail is None or refused.detail == detail


def _tower(height: int) -> Any:
    tower: Any = 1
    for _ in range(height):
        tower = [tower]
    return tower


def test_a_chunk_may_be_as_deep_as_a_stored_one() -> None:
    assert refusal_of({"type": "data-x", "data": _tower(MAX_DEPTH - 1)}) is None
    assert refusal_of({"type": "data-x", "data": _tower(MAX_DEPTH)}) == Refusal(Why.TOO_DEEP)


def test_a_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle += [circle, circle]
    assert refusal_of({"type": "data-x", "data": circle}) == Refusal(Why.TOO_DEEP)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_chunk_or_a_refusal(raw: bytes) -> None:
    found = parse_chunk(raw)
    assert isinstance(found, (dict, Refusal))
    assert isinstance(found, Refusal) or len(to_bytes(found)) <= 2 * len(raw)


@given(altered_chunks)
def test_text_bytes_and_value_are_judged_alike(chunk: Any) -> None:
    text = json.dumps(chunk)
    found = [parse_chunk(text), parse_chunk(text.encode()), parse_chunk(json.loads(text))]
    assert len({isinstance(item, Refusal) for item in found}) == 1
    assert isinstance(found[0], Refusal) or found == [chunk] * 3
    assert isinstance(read_chunk(chunk), (Refusal, UnknownChunk)) or refusal_of(chunk) is None


def test_a_chunk_of_an_unknown_type_is_kept_whole() -> None:
    """I16."""
    chunk = {"z": 1, "type": "nobody-knows", "delta": "\ud83d", "a": [None]}
    view = read_chunk(chunk)
    assert isinstance(view, UnknownChunk)
    assert encode(view.as_json()) == encode(chunk)
    assert isinstance(read_chunk({"type": 5}), Refusal)


def test_views_have_names_of_their_own() -> None:
    view = read_chunk({"toolName": "t", "type": "tool-input-start", "toolCallId": "c", "tool_name": "extra"})
    assert isinstance(view, ToolInputStart)
    assert (view.tool_name, view.tool_call_id, view.title) == ("t", "c", None)
    assert list(view.as_json()) == ["toolName", "type", "toolCallId", "tool_name"]
    assert TextDelta(id="1", delta="x").as_json() == {"type": "text-delta", "id": "1", "delta": "x"}


def test_parts_have_views() -> None:
    stored = {"type": "tool-t", "toolCallId": "c", "state": "approval-requested", "approval": {"zz": 1, "id": "p"}}
    view = read_part(stored)
    assert isinstance(view, ToolPart)
    assert view.approval is not None
    assert (view.approval.id, view.state) == ("p", "approval-requested")
    assert encode(view.as_json()) == encode(stored)
    dynamic = read_part({"type": "dynamic-tool", "toolName": "t", "toolCallId": "c", "state": "output-denied"})
    assert isinstance(dynamic, DynamicToolPart)
    made = ToolPart(type="tool-t", tool_call_id="c", state="approval-requested", approval=Approval(id="p"))
    assert made.as_json() == {**stored, "approval": {"id": "p"}}


@pytest.mark.parametrize("part", [{}, {"type": 5}, {"type": "text", "text": 5}, {"type": "of-later"}])
def test_a_part_that_nobody_knows_is_kept_whole(part: dict[str, Any]) -> None:
    """I16."""
    view = read_part(part)
    assert isinstance(view, UnknownPart)
    assert view.as_json() == part


@given(
    st.lists(st.sampled_from(["data: a", "data:b", ":c", "id: 1", "", "\r", "\n", "\r\n", "data", "é"]), max_size=12)
)
def test_where_the_blocks_end_changes_no_event(pieces: list[str]) -> None:
    whole = "".join(pieces).encode()
    assert list(events_in([whole])) == list(events_in([bytes([byte]) for byte in whole]))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_stream(raw: bytes) -> None:
    found = list(chunks_in([b"data: ", raw, b"\n\n"]))
    assert all(isinstance(item, (dict, Refusal)) for item in found)
