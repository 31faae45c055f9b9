"""Unfinished JSON: what of it is read, and that nothing about it is slow, large or loud."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.transcript.chunk import MAX_DEPTH
from runner.core.transcript.partial_json import MISSING, completed, has_forbidden_key, parse_json, parse_partial

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)
syntax = st.text(st.sampled_from('{}[]",:\\u0019aeEfnt-+. \n😀\ud83d\ufeff'), max_size=40)


@given(values)
def test_whole_json_is_itself(value: Any) -> None:
    assert parse_partial(json.dumps(value)) == value


@given(values, st.data())
def test_a_beginning_of_json_has_the_beginning_of_the_value(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    begun = text[: data.draw(st.integers(0, len(text)))]
    assert _is_beginning(parse_partial(begun), value)


def _is_beginning(part: Any, whole: Any) -> bool:
    """Everything in `part` stands at the same place in `whole`, or is a shorter text, a shorter number or a guess."""
    match part, whole:
        case dict(), dict():
            return all(key in whole and _is_beginning(item, whole[key]) for key, item in part.items())
        case list(), list():
            return len(part) <= len(whole) and all(map(_is_beginning, part, whole))
        case str(), str():
            return whole.startswith(part) or not whole.isascii()
        case _:
            return part is MISSING or type(part) is type(whole) or isinstance(part, (int, float))


@given(syntax | st.text())
def test_no_text_is_too_odd(text: str) -> None:
    value = parse_partial(text)
    assert value is MISSING or len(json.dumps(value)) <= 12 * len(text) + 12
    assert len(completed(text)) <= 2 * len(text) + 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e400", None),
        ("-1e400", None),
        ("-0", 0),
        ("-0.0", 0),
        ("9" * 400, None),
        ("9" * 5_000, None),
        ("[1😀", MISSING),
        ('{"a":tru😀', MISSING),
        ('"\\😀', MISSING),
        ('{"a":1}}', {"a": 1}),
        ("NaN", MISSING),
        ("\ufeff{}", MISSING),
        ('{"__proto__":1', MISSING),
        ('{"\\u005f_proto__":1', MISSING),
        ('{"constructor":{"prototype":1', MISSING),
        ('{"constructor":1', {"constructor": 1}),
        ("[" * MAX_DEPTH, [*json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)]),
        ("[" * (MAX_DEPTH + 1), MISSING),
        ("[" * 100_000, MISSING),
        ('"\ud83d', "\ud83d"),
    ],
)
def test_traps(text: str, value: Any) -> None:
    found = parse_partial(text)
    assert found is value if value is MISSING else found == value and repr(found) == repr(value)


def test_a_number_as_it_was_written_may_be_infinite() -> None:
    assert parse_json("1e400") == float("inf") == parse_json("9" * 5_000)
    assert repr(parse_json("-0.0")) == "-0.0"
    assert repr(MISSING) == "MISSING"


@pytest.mark.parametrize("deep", [[{"a": [{"__proto__": 1}]}], {"x": {"constructor": {"prototype": None}}}])
def test_forbidden_keys_are_found_at_any_depth(deep: Any) -> None:
    assert has_forbidden_key(deep)
    assert not has_forbidden_key([[1, "__proto__"], {"constructor": ["prototype"], "prototype": {}}])
