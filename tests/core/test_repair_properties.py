"""What holds of repair for every history: no hole is left, nothing else changes, a second pass changes nothing."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.transcript.repair import repair
from runner.core.transcript.tool_state import Message, Part, State, awaits_human, is_call, is_settled, state_of

CLIENT_TOOLS = frozenset({"ask_user"})
INPUTS: tuple[Any, ...] = ({"q": 1}, {}, None, "", '{"q":1}', "{", [1], 0, {"deep": {"er": [1, {}]}})

# ----------------------------------------------------------------------------------------------------------------------
# Histories
# ----------------------------------------------------------------------------------------------------------------------

_RESULTS: dict[str, dict[str, Any]] = {
    "input-streaming": {},
    "input-available": {},
    "approval-requested": {"approval": {"id": "ap"}},
    "approval-responded": {"approval": {"id": "ap", "approved": True}},
    "approval-denied": {"state": "approval-responded", "approval": {"id": "ap", "approved": False, "reason": "no"}},
    "output-available": {"output": {"ok": True}},
    "preliminary": {"state": "output-available", "output": 1, "preliminary": True},
    "output-error": {"errorText": "boom"},
    "output-denied": {"approval": {"id": "ap", "approved": False}},
}


@st.composite
def calls(draw: st.DrawFn) -> Part:
    """A tool part in any state; few ids, so that they are used again and again."""
    kind = draw(st.sampled_from(list(_RESULTS)))
    name = draw(st.sampled_from(["search", "delete", "ask_user"]))
    typed = draw(st.sampled_from([{"type": f"tool-{name}"}, {"type": "dynamic-tool", "toolName": name}]))
    part: Part = {**typed, "toolCallId": draw(st.sampled_from(["c1", "c2", "fn.x:0", ""])), "state": kind}
    if draw(st.integers(0, 9)):
        part["input"] = draw(st.sampled_from(INPUTS))
    if not draw(st.integers(0, 9)):
        part["providerExecuted"] = True
    return {**part, **_RESULTS[kind]}


def others() -> st.SearchStrategy[Part]:
    return st.sampled_from(
        [
            {"type": "step-start"},
            {"type": "step-start"},
            {"type": "text", "text": "hello", "state": "done"},
            {"type": "text", "text": " \n"},
            {"type": "reasoning", "text": "hm", "providerMetadata": {"p": {"signature": "é\ud800"}}, "state": "done"},
            {"type": "reasoning", "text": "cut", "providerMetadata": {"p": {"signature": "x"}}, "state": "streaming"},
            {"type": "data-note", "id": "n", "data": 1},
            {"type": "file", "mediaType": "image/png", "url": "https://x.test/a.png"},
            {"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "stop"}]},
            {"type": "tool-nameless", "state": "input-available", "input": {}},
            {"type": "tool-", "toolCallId": "c9", "state": "output-available", "output": 1},
        ]
    ).map(copy.deepcopy)


def answers() -> st.SearchStrategy[Message]:
    parts = st.lists(st.one_of(calls(), others()), max_size=7)
    return st.builds(lambda parts: {"id": "a", "role": "assistant", "parts": parts}, parts)


def questions() -> st.SearchStrategy[Message]:
    texts = st.sampled_from(["hi", "", "go on"])
    return st.builds(lambda text: {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}, texts)


def histories() -> st.SearchStrategy[list[Message]]:
    system = st.just({"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be brief."}]})
    return st.lists(st.one_of(answers(), questions(), system), max_size=12)


@st.composite
def long_histories(draw: st.DrawFn) -> list[Message]:
    """Up to 500 messages, most of them sound, with holes anywhere."""
    few = draw(st.lists(answers(), min_size=1, max_size=6))
    sound = {"type": "tool-search", "toolCallId": "c1", "state": "output-available", "input": {"q": 1}, "output": 1}
    chance = random.Random(draw(st.integers(0, 2**32)))
    made: list[Message] = []
    for number in range(draw(st.sampled_from([1, 50, 250]))):
        made.append({"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": "go"}]})
        hole = chance.random() < 0.05
        made.append(copy.deepcopy(chance.choice(few)) if hole else {"id": "a", "role": "assistant", "parts": [sound]})
    return made


def options() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "client_tools": st.sampled_from([frozenset(), CLIENT_TOOLS]),
            "continuation": st.booleans(),
            "superseded": st.sampled_from([None, True, False]),
            "leave": st.sampled_from([frozenset(), frozenset({"c1"})]),
        }
    )


def _to_text(part: Part) -> Part | None:
    return {"type": "text", "text": str(part["input"])} if part["type"] == "tool-ask_user" else None


def _to_output(part: Part) -> Part:
    return {**part, "state": "output-available", "output": "late", "input": "{", "_provisional": True}


def _raises(part: Part) -> Part:
    part.clear()
    raise LookupError("x")


HOOKS: tuple[Callable[[Part], Any] | None, ...] = (
    None,
    _to_text,
    _to_output,
    _raises,
    lambda part: part,
    lambda part: {**part, "state": "input-available", "more": 1},
    lambda part: "nothing",
)

many = settings(max_examples=100, deadline=None)

# ----------------------------------------------------------------------------------------------------------------------
# What a stock client accepts
# ----------------------------------------------------------------------------------------------------------------------


def is_valid_message(message: Message) -> bool:
    """Whether a stock client accepts the stored message; of the parts only those of tools are looked at closely."""
    return isinstance(message.get("id"), str) and all(map(is_valid_part, message["parts"]))


def is_valid_part(part: Part) -> bool:
    if not is_call(part):
        known = ("text", "reasoning", "file", "step-start", "steering-message")
        return part["type"] in known or part["type"].startswith("data-")
    approval = part.get("approval")
    answer = None if approval is None else approval.get("approved", "asked")
    match part.get("state"):
        case "input-streaming" | "input-available":
            return answer is None
        case "approval-requested":
            return answer == "asked"
        case "approval-responded":
            return isinstance(answer, bool)
        case "output-available":
            return answer in (None, True) and "output" in part
        case "output-error":
            return answer in (None, True) and isinstance(part.get("errorText"), str)
        case "output-denied":
            return answer is False
        case _:
            return False


# ----------------------------------------------------------------------------------------------------------------------
# Laws
# ----------------------------------------------------------------------------------------------------------------------

hooks = st.sampled_from(HOOKS)


def tool_parts(messages: list[Message]) -> list[Part]:
    return [part for message in messages for part in message["parts"] if is_call(part)]


@many
@given(histories(), hooks, options())
def test_a_second_repair_changes_nothing(messages: list[Message], hook: Any, chosen: dict[str, Any]) -> None:
    """BP-22."""
    once = repair(messages, hook, **chosen)
    again = repair(once.messages, hook, **chosen)
    assert again.messages is once.messages
    assert (again.touched, again.repaired, again.normalized, again.doubled, again.problems) == ((), (), (), (), ())


@many
@given(histories(), hooks, options())
def test_what_is_not_touched_is_the_same_object(messages: list[Message], hook: Any, chosen: dict[str, Any]) -> None:
    before = copy.deepcopy(messages)
    result = repair(messages, hook, **chosen)
    assert messages == before, "the given history is not changed"
    assert len(result.messages) == len(messages)
    for index, (new, old) in enumerate(zip(result.messages, messages, strict=True)):
        assert (new is old) is (index not in result.touched)
        assert [key for key in new if key != "parts"] == [key for key in old if key != "parts"]
    assert (result.messages is messages) is (result.touched == ())
    json.dumps(result.messages, allow_nan=False)


@many
@given(histories(), hooks)
def test_a_new_turn_leaves_no_call_open_before_it(messages: list[Message], hook: Any) -> None:
    """BP-19, BP-21, BP-22: before the last user message every call is settled, wherever it stands."""
    new_turn = [*messages, {"id": "u", "role": "user", "parts": [{"type": "text", "text": "next"}]}]
    result = repair(new_turn, hook, client_tools=CLIENT_TOOLS)
    assert all(is_settled(part) for part in tool_parts(result.messages))
    assert all(isinstance(part["input"], dict) for part in tool_parts(result.messages))


@many
@given(histories(), hooks, options())
def test_results_and_waiting_calls_stay(messages: list[Message], hook: Any, chosen: dict[str, Any]) -> None:
    """I4, I15: a result never changes, and with nobody moved past it a call that waits stays as it is."""
    result = repair(messages, hook, **{**chosen, "superseded": False})
    kept = [json.dumps(part, sort_keys=True) for part in tool_parts(result.messages)]
    without_input = [_but_input(json.loads(part)) for part in kept]
    copies = set(result.doubled)
    for part in tool_parts(messages):
        if part["toolCallId"] in copies:
            continue
        if is_settled(part):
            assert _but_input(part) in without_input
        elif awaits_human(part, chosen["client_tools"]):
            assert json.dumps(part, sort_keys=True) in kept


def _but_input(part: Part) -> Part:
    return {key: value for key, value in part.items() if key != "input"}


@many
@given(histories(), hooks, options())
def test_what_is_left_open_has_somebody_who_will_close_it(
    messages: list[Message], hook: Any, chosen: dict[str, Any]
) -> None:
    for message in (result := repair(messages, hook, **chosen)).messages:
        for part in message["parts"]:
            if is_call(part) and not is_settled(part):
                assert (
                    state_of(part) is State.APPROVAL_RESPONDED
                    or awaits_human(part, chosen["client_tools"])
                    or (message is result.messages[-1] and part["toolCallId"] in chosen["leave"])
                )


@many
@given(histories())
def test_a_client_accepts_what_the_default_leaves(messages: list[Message]) -> None:
    accepted = [{**m, "parts": [part for part in m["parts"] if is_valid_part(part)]} for m in messages]
    assert all(map(is_valid_message, repair(accepted, client_tools=CLIENT_TOOLS).messages))


@many
@given(histories(), hooks)
def test_no_private_note_leaves_with_a_repaired_part(messages: list[Message], hook: Any) -> None:
    marked = copy.deepcopy(messages)
    for part in tool_parts(marked):
        part.update({} if is_settled(part) else {"_provisional": True})
    shown: list[Part] = []

    def watching(part: Part) -> Any:
        shown.append(copy.deepcopy(part))
        return hook(part) if hook else None

    result = repair(marked, watching, superseded=True)
    assert not any("_provisional" in part for part in shown)
    assert not any("_provisional" in part for part in tool_parts(result.messages) if is_settled(part))


@settings(max_examples=20, deadline=None)
@given(long_histories())
def test_a_long_history_is_repaired_where_it_has_holes_and_nowhere_else(messages: list[Message]) -> None:
    """BP-22: every index, not the end; a second pass changes nothing."""
    messages.append({"id": "u", "role": "user", "parts": [{"type": "text", "text": "next"}]})
    result = repair(messages, client_tools=CLIENT_TOOLS)
    assert all(is_settled(part) for part in tool_parts(result.messages))
    assert {index for index, message in enumerate(result.messages) if message is not messages[index]} == {
        *result.touched
    }
    assert repair(result.messages).messages is result.messages
