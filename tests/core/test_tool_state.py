"""Tool parts: the table of what may become of them, and the questions asked of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.transcript.tool_state import (
    TRANSITIONS,
    Event,
    Part,
    State,
    answered,
    awaits_human,
    has_incomplete_batch,
    is_call,
    is_denied,
    is_settled,
    is_tool,
    moved,
    normalized_input,
    parts_of,
    same_call,
    same_json,
    state_of,
    tool_name,
    unfinished_calls,
    with_approval,
    with_error,
    with_output,
)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def call(state: str, **fields: Any) -> Part:
    return {"type": "tool-look", "toolCallId": "c1", "state": state, "input": {"a": 1}, **fields}


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("state", list(State))
def test_only_what_the_table_has_happens(event: Event, state: State) -> None:
    """I4, I15."""
    part = call(state, preliminary=True)
    new = moved(part, event, extra=1)
    target = None if state in (State.OUTPUT_ERROR, State.OUTPUT_DENIED) else TRANSITIONS[event].get(state)
    if target is None:
        assert new is None
    else:
        assert new == {**call(target), "extra": 1}
    assert part == call(state, preliminary=True)


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize(
    "part",
    [
        call("output-available", output=None),
        call("output-error", errorText="e"),
        call("output-denied"),
        call("input-available", result=1),
    ],
)
def test_a_result_is_final(event: Event, part: Part) -> None:
    """I4."""
    assert moved(part, event) is None


def test_an_answered_call_is_not_asked_about_again() -> None:
    """I15."""
    assert TRANSITIONS[Event.ASK].keys().isdisjoint({State.APPROVAL_RESPONDED})
    assert with_approval(call("approval-responded", approval={"id": "p", "approved": True}), False) is None


def test_a_preliminary_output_becomes_final() -> None:
    early = with_output(call("input-available", rawInput='{"a":1}'), 1, preliminary=True)
    assert early == call("output-available", output=1, preliminary=True)
    assert with_output(early, 2) == call("output-available", output=2)
    assert with_error(early, "e") == call("output-error", errorText="e")
    assert with_output(early, 2, by_client=True) is None


def test_an_approval_keeps_what_was_asked_and_takes_the_answer() -> None:
    asked = call("approval-requested", approval={"id": "p", "descriptor": {"d": 1}})
    assert with_approval(asked, True) == call(
        "approval-responded", approval={"id": "p", "descriptor": {"d": 1}, "approved": True}
    )
    denied = with_approval(call("input-available", approval="odd"), False, "no")
    assert denied == call("output-denied", approval={"id": "c1", "approved": False, "reason": "no"})
    assert is_denied(denied)


def test_an_unknown_state_does_not_move() -> None:
    part = call("zz")
    assert (state_of(part), moved(part, Event.OUTPUT), is_settled(part)) == (None, None, False)
    assert state_of({"state": ["input-available"]}) is None


def test_an_answer_goes_to_the_first_part_that_takes_it() -> None:
    done, open_ = call("output-available", output=1), call("input-available")
    other = {**open_, "toolCallId": "c2"}
    result = answered([other, done, open_, open_], "c1", lambda part: with_output(part, 2, by_client=True))
    assert result == (2, [other, done, call("output-available", output=2), open_])
    assert answered([done], "c1", lambda part: with_output(part, 2)) is None


def test_who_waits_for_a_human() -> None:
    asking = {"type": "dynamic-tool", "toolName": "ask_user", "toolCallId": "c", "state": "input-available"}
    assert awaits_human(asking, {"ask_user"})
    assert not awaits_human(asking, {"other"})
    assert not awaits_human({**asking, "state": "input-streaming"}, {"ask_user"})
    assert awaits_human({**asking, "state": "approval-requested"}, ())


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"type": "tool-look-up"}, "look-up"),
        ({"type": "tool-look", "toolName": "see"}, "see"),
        ({"type": "dynamic-tool", "toolName": "x"}, "x"),
        ({"type": "dynamic-tool", "toolName": ""}, ""),
        ({"type": "tool-"}, ""),
        ({}, ""),
    ],
)
def test_the_name_of_a_tool(part: Part, name: str) -> None:
    assert tool_name(part) == name


@pytest.mark.parametrize("part", [None, "tool-x", {}, {"type": 1}, {"type": "text"}, {"type": "toolx"}])
def test_what_is_no_tool_part(part: object) -> None:
    assert not is_tool(part)
    assert not is_call(part)


def test_a_call_has_an_id() -> None:
    assert is_tool({"type": "tool-x"})
    assert not is_call({"type": "tool-x", "toolCallId": 7})
    assert is_call({"type": "dynamic-tool", "toolCallId": ""})


def test_calls_that_nobody_finished_are_listed() -> None:
    parts = [call("input-available"), call("approval-responded"), call("output-denied"), {"type": "tool-x"}, "odd"]
    messages = [{"role": "assistant", "parts": parts}, {"role": "user"}]
    assert unfinished_calls(messages) == ["c1"]
    assert [parts_of(message) for message in messages] == [parts[:-1], []]


def test_a_batch_is_incomplete_while_one_call_waits_beside_answers() -> None:
    def answer(*parts: Part) -> list[dict[str, Any]]:
        return [{"role": "user", "parts": []}, {"role": "assistant", "parts": list(parts)}]

    waiting, done = call("approval-requested"), call("output-error", errorText="e")
    assert has_incomplete_batch(answer(waiting, done))
    assert has_incomplete_batch([*answer(waiting, call("approval-responded")), {"role": "user", "parts": []}])
    assert not has_incomplete_batch(answer(waiting))
    assert not has_incomplete_batch(answer(done))
    assert not has_incomplete_batch([])


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": ' * 100_000, '{"a": ' + "9" * 5000 + "}", "\ufeff{}", '{"a": Infinity}']
)
def test_input_that_is_no_json_is_empty(text: str) -> None:
    assert normalized_input(text) == ({}, True)


def test_a_number_too_large_is_null_as_in_json() -> None:
    assert normalized_input('{"a": 1e400, "b": 1.5}') == ({"a": None, "b": 1.5}, True)


@given(json_values)
def test_normalizing_twice_is_normalizing_once(raw: Any) -> None:
    value, changed = normalized_input(raw)
    assert normalized_input(value) == (value, False)
    assert changed is (value is not raw)


@given(json_values, json_values)
def test_json_equality(one: Any, other: Any) -> None:
    assert same_json(one, one)
    assert same_json(one, other) == same_json(other, one)
    assert not same_json(one, other) or one == other


def test_true_is_not_one_and_key_order_does_not_count() -> None:
    assert not same_json({"a": [1]}, {"a": [True]})
    assert not same_json([1], [1, 2])
    assert same_json({"a": 1, "b": 2}, {"b": 2, "a": 1.0})


def test_the_same_call_has_the_same_id_tool_and_input() -> None:
    one = call("input-available")
    assert same_call(one, call("output-available", output=1, toolName="look"))
    assert not same_call({**one, "toolName": "see"}, {**one, "toolName": "look"})
    assert not same_call(one, {**one, "type": "dynamic-tool"})
    assert not same_call(one, {**one, "toolCallId": "c2"})
    assert not same_call(one, {**one, "input": {}})
