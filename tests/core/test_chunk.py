"""Chunks as bytes: the same for the same chunk, whole for every JSON value, refused for anything else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.transcript import chunk

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=4),
    max_leaves=12,
)
chunks = st.dictionaries(st.text(st.characters(codec=None)), values, max_size=5)


@given(chunks)
def test_a_chunk_comes_back_as_it_was(value: dict[str, Any]) -> None:
    """I16, half characters and unknown fields included."""
    assert chunk.decode_batch(chunk.join([chunk.encode(value)])) == [value]


@given(st.lists(chunks, max_size=5))
def test_a_batch_is_one_json_array_of_its_chunks(batch: list[dict[str, Any]]) -> None:
    joined = chunk.join([chunk.encode(value) for value in batch])
    assert joined.isascii() or joined.decode()
    assert chunk.decode_batch(joined) == batch


@given(chunks)
def test_the_same_chunk_is_the_same_bytes(value: dict[str, Any]) -> None:
    first = chunk.encode(value)
    assert chunk.encode(json.loads(first)) == first


def test_bytes_are_compact_utf8() -> None:
    assert chunk.encode({"type": "text-delta", "id": "t", "delta": "é😀\n"}) == (
        '{"type":"text-delta","id":"t","delta":"é😀\\n"}'.encode()
    )


def test_half_a_character_is_kept_as_its_escape() -> None:
    assert chunk.encode({"delta": "\ud83d"}) == b'{"delta":"\\ud83d"}'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beside", ["text", "\ud83d"])
def test_a_number_that_json_does_not_know_becomes_null(number: float, beside: str) -> None:
    """As in JavaScript, and whatever else the chunk holds."""
    encoded = chunk.encode({"type": "data-x", "data": [number, {"n": number}], "beside": beside})
    assert json.loads(encoded) == {"type": "data-x", "data": [None, {"n": None}], "beside": beside}


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["itself"] = circle
    return circle


def _tower(height: int) -> list[Any]:
    tower: list[Any] = []
    for _ in range(height):
        tower = [tower]
    return tower


@pytest.mark.parametrize(
    "value",
    [object(), b"\xff", {"f": len}, _circle(), _tower(100_000), [object(), "\ud83d"]],
    ids=["object", "bytes", "function", "circle", "tower", "object beside half a character"],
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        chunk.encode({"type": "data-x", "data": value})


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (chunk.start("m"), {"type": "start", "messageId": "m"}),
        (chunk.start_step(), {"type": "start-step"}),
        (chunk.finish_step(), {"type": "finish-step"}),
        (chunk.reset_step(), {"type": "reset-step"}),
        (chunk.finish("stop"), {"type": "finish", "finishReason": "stop"}),
        (chunk.abort(), {"type": "abort"}),
        (chunk.error("boom"), {"type": "error", "errorText": "boom"}),
    ],
)
def test_the_chunks_that_the_runner_makes_are_those_of_the_protocol(made: Any, expected: Any) -> None:
    assert made == expected
