"""The provider view and its call ids: sound for every history, the same for the same history."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.transcript.call_ids import CallIds, IdRules
from runner.core.transcript.provider_view import (
    DENIED,
    FAILED,
    NOT_YET_RUN,
    WAITING,
    AssistantMessage,
    File,
    ProviderMessage,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    as_json,
    provider_view,
)
from runner.core.transcript.repair import INPUT_CUT, INTERRUPTED, repair
from runner.core.transcript.tool_state import Message, Part
from tests.core.test_repair_properties import histories, long_histories, many

SIGNED = {"anthropic": {"signature": 'EqQ..é"\\'}}
STEP = {"type": "step-start"}
NINE = IdRules(min_length=9, max_length=9, charset=string.ascii_letters + string.digits)


def text(content: str, **fields: Any) -> Part:
    return {"type": "text", "text": content, **fields}


def thought(content: str, **fields: Any) -> Part:
    return {"type": "reasoning", "text": content, "state": "done", "providerMetadata": SIGNED, **fields}


def call(state: str, call_id: str = "c1", **fields: Any) -> Part:
    return {"type": "tool-look", "toolCallId": call_id, "state": state, "input": {"a": 1}, **fields}


def user(*parts: Part) -> Message:
    return {"id": "u", "role": "user", "parts": list(parts) or [text("?")]}


def answer(*parts: Part) -> Message:
    return {"id": "a", "role": "assistant", "parts": list(parts)}


def roles(view: list[ProviderMessage]) -> list[str]:
    return [message.role for message in view]


def assert_sound(view: list[ProviderMessage]) -> None:
    """I6, strict alternation, nothing empty, ids unique."""
    before: ProviderMessage | None = None
    seen: list[str] = []
    for message in [*view, None]:
        called = [c for c in before.content if isinstance(c, ToolCall)] if isinstance(before, AssistantMessage) else []
        owed = [c.call_id for c in called if not c.provider_executed]
        seen += [c.call_id for c in called]
        if owed:
            assert isinstance(message, ToolMessage)
            assert [result.call_id for result in message.content] == owed
            assert not any(result.provider_executed for result in message.content)
        else:
            assert not isinstance(message, ToolMessage)
        if message is not None:
            assert message.content
            assert before is None or type(message) is not type(before)
            assert not isinstance(message, SystemMessage) or before is None
        if isinstance(message, AssistantMessage):
            assert_telling(message)
        before = message
    assert len(set(seen)) == len(seen)


def assert_telling(message: AssistantMessage) -> None:
    *_, last = message.content
    assert not isinstance(last, Reasoning)
    for item, following in zip(message.content, [*message.content[1:], None], strict=True):
        assert not isinstance(item, Text) or item.text.strip()
        if isinstance(item, ToolCall) and item.provider_executed:
            assert isinstance(following, ToolResult)
            assert following.call_id == item.call_id
        else:
            assert not isinstance(following, ToolResult)


rules = st.sampled_from([None, IdRules(), NINE, IdRules(max_length=8, charset="0123456789abcdef")])

# ----------------------------------------------------------------------------------------------------------------------
# Laws
# ----------------------------------------------------------------------------------------------------------------------


@many
@given(histories(), rules, st.booleans())
def test_the_view_of_any_history_is_sound(messages: list[Message], chosen: IdRules | None, repaired: bool) -> None:
    view = provider_view(repair(messages).messages if repaired else messages, id_rules=chosen)
    assert_sound(view)
    ids = [item.call_id for message in view for item in message.content if isinstance(item, ToolCall)]
    assert chosen is None or all(map(chosen.allow, ids))
    assert [item["role"] for item in json.loads(json.dumps(as_json(view)))] == roles(view)


@settings(max_examples=20, deadline=None)
@given(long_histories())
def test_the_view_of_a_long_history_is_sound(messages: list[Message]) -> None:
    """BP-22."""
    assert_sound(provider_view(repair(messages).messages, id_rules=NINE))


@many
@given(histories(), rules, st.integers(0, 12))
def test_what_was_shown_is_shown_again_when_the_history_grows(
    messages: list[Message], chosen: IdRules | None, length: int
) -> None:
    """Ids are stable: else every turn would miss the provider's cache."""

    def ids(history: list[Message]) -> list[str]:
        view = provider_view(history, id_rules=chosen)
        return [item.call_id for message in view for item in message.content if isinstance(item, ToolCall)]

    shorter = ids(messages[:length])
    assert ids(messages)[: len(shorter)] == shorter


@many
@given(histories())
def test_thoughts_go_back_whole_or_not_at_all(messages: list[Message]) -> None:
    given_ = [part for m in messages for part in m["parts"] if part["type"] == "reasoning"]
    for message in provider_view(messages):
        for item in message.content:
            if isinstance(item, Reasoning):
                assert any(part["text"] == item.text and part["providerMetadata"] == item.metadata for part in given_)


@many
@given(histories())
def test_every_call_that_has_a_name_is_told_once(messages: list[Message]) -> None:
    view = provider_view(repair(messages, superseded=True).messages)
    told = [item.source_id for message in view for item in message.content if isinstance(item, ToolCall)]
    named = [
        part["toolCallId"]
        for message in repair(messages, superseded=True).messages
        if message["role"] == "assistant"
        for part in message["parts"]
        if "toolCallId" in part and part["type"] != "tool-" and not _only_the_provider_knows(part)
    ]
    assert told == named


def _only_the_provider_knows(part: Part) -> bool:
    return part.get("providerExecuted") is True and part["state"] == "approval-responded"


# ----------------------------------------------------------------------------------------------------------------------
# Cases
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "outcome", "value"),
    [
        (call("output-available", output={"b": 2}), "ok", {"b": 2}),
        (call("output-available", output=None), "ok", None),
        (call("input-available", result=3), "ok", 3),
        (call("output-available", output=1, preliminary=True), "interrupted", INTERRUPTED),
        (call("output-error", errorText="boom"), "error", "boom"),
        (call("output-error", errorText=" "), "error", FAILED),
        (call("output-denied", approval={"id": "p", "approved": False}), "denied", DENIED),
        (call("output-denied", approval={"reason": "no"}), "denied", f"{DENIED} Reason: no"),
        (call("output-denied", approval="odd"), "denied", DENIED),
        (call("approval-responded", approval={"approved": False, "reason": "no"}), "denied", f"{DENIED} Reason: no"),
        (call("approval-responded", approval={"approved": True}), "interrupted", NOT_YET_RUN),
        (call("approval-requested", approval={"id": "p"}), "interrupted", WAITING),
        (call("input-streaming"), "interrupted", INPUT_CUT),
        (call("input-available"), "interrupted", INTERRUPTED),
    ],
)
def test_what_a_model_is_told_of_a_call(part: Part, outcome: str, value: Any) -> None:
    """BP-20, BP-21."""
    _, told, results, _ = provider_view([user(), answer(text("Look."), part), user()])
    assert told.content == (Text("Look."), ToolCall("c1", "c1", "look", {"a": 1}))
    assert results.content == (ToolResult("c1", "look", outcome, value),)  # type: ignore[arg-type]


def test_results_stand_in_call_order_right_after_their_step() -> None:
    """BP-28: three whole calls are three results."""
    three = [call("output-available", f"c{n}", output=n) for n in (1, 2, 3)]
    view = provider_view([user(), answer(STEP, three[0], text("and"), three[1], STEP, three[2], STEP, text("done"))])
    assert roles(view) == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [[r.value for r in message.content] for message in view if isinstance(message, ToolMessage)] == [[1, 2], [3]]


@pytest.mark.parametrize("parts", [[], [STEP], [STEP, thought("hm")], [text(" \n")], [STEP, thought("a"), text("")]])
def test_an_answer_that_says_nothing_is_left_out_and_its_neighbours_are_one(parts: list[Part]) -> None:
    """BP-23."""
    (only,) = provider_view([user(text("a")), answer(*parts), answer(*parts), user(text("b"))])
    assert only == UserMessage((Text("a"), Text("b")))


def test_an_answer_of_calls_alone_has_no_empty_text() -> None:
    """BP-23."""
    _, told, _ = provider_view([user(), answer(text(""), call("output-available", output=1), text("\n"))])
    assert [type(item) for item in told.content] == [ToolCall]


def test_a_text_continued_after_a_crash_is_one_text() -> None:
    """BP-32."""
    _, told = provider_view([user(), answer(STEP, text("On"), text("ce"), STEP, text(" up")), answer(text("on"))])
    assert told == AssistantMessage((Text("Once upon"),))


def test_a_text_that_its_provider_marked_stays_as_it_is() -> None:
    marked = text("b", providerMetadata={"openai": {"phase": "final"}})
    _, told = provider_view([user(), answer(text("a"), marked, text("c", providerMetadata={}))])
    assert told.content == (Text("a"), Text("b", {"openai": {"phase": "final"}}), Text("c"))


def test_a_thought_needs_its_mark_its_end_and_something_it_leads_to() -> None:
    cut, unsigned = thought("cut", state="streaming"), thought("plain", providerMetadata=None)
    _, told = provider_view([user(), answer(thought("é\ud800"), cut, unsigned, text("Hi"), STEP, thought("tail"))])
    assert told.content == (Reasoning("é\ud800", SIGNED), Text("Hi"))
    _, told, _ = provider_view([user(), answer(thought(""), call("output-available", output=1))])
    assert told.content[0] == Reasoning("", SIGNED)


def test_what_a_provider_ran_stays_in_the_answer() -> None:
    done = call("output-available", output=1, providerExecuted=True, callProviderMetadata=SIGNED)
    marked = {**done, "resultProviderMetadata": {"p": {"enc": "x"}}}
    open_ = call("input-available", "c2", providerExecuted=True)
    _, told = provider_view([user(), answer(marked, open_, text("So"))])
    assert told.content == (
        ToolCall("c1", "c1", "look", {"a": 1}, True, SIGNED),
        ToolResult("c1", "look", "ok", 1, True, {"p": {"enc": "x"}}),
        Text("So"),
    )


def test_system_messages_are_one_and_first() -> None:
    def system(*texts: str) -> Message:
        return {"role": "system", "parts": [*map(text, texts), {"type": "file"}]}

    view = provider_view([user(), system("Be ", "brief."), user(), system(" "), system("Be kind.")])
    assert view[0] == SystemMessage((Text("Be brief."), Text("Be kind.")))
    assert roles(view) == ["system", "user"]
    assert provider_view([system("")]) == []


def test_words_of_the_user_in_between_stand_between() -> None:
    steering = {"type": "steering-message", "id": "s", "parts": [text("stop"), {"type": "custom"}]}
    view = provider_view([user(), answer(STEP, call("output-available", output=1), steering, STEP, text("ok"))])
    assert roles(view) == ["user", "assistant", "tool", "user", "assistant"]
    assert view[3] == UserMessage((Text("stop"),))


def test_files_of_both_sides() -> None:
    png = {"type": "file", "mediaType": "image/png", "url": "https://x.test/a.png", "filename": "a.png"}
    odd = {"type": "file", "url": 7}
    view = provider_view([user(png, odd), answer({"type": "file", "url": "data:,x", "filename": 1}, odd)])
    assert view == [
        UserMessage((File("https://x.test/a.png", "image/png", "a.png"),)),
        AssistantMessage((File("data:,x", ""),)),
    ]


def test_what_no_provider_knows_is_left_out() -> None:
    nameless = [
        {"type": "dynamic-tool", "toolCallId": "c", "state": "output-available", "output": 1},
        {"type": "tool-x"},
    ]
    unknown: list[Part] = [{"type": "source-url"}, {"type": "data-x", "data": 1}, {}, {"type": "text"}]
    messages = [user(), answer(*nameless, *unknown, text("Hi")), {"role": "tool", "parts": [text("x")]}, {}]
    assert provider_view(messages)[1:] == [AssistantMessage((Text("Hi"),))]


def test_as_json_leaves_out_what_is_absent() -> None:
    view = provider_view([user(), answer(call("output-available", output=None, input='{"b":2}'))])
    assert as_json(view)[1:] == [
        {
            "role": "assistant",
            "content": [
                {
                    "type": "tool-call",
                    "call_id": "c1",
                    "source_id": "c1",
                    "tool_name": "look",
                    "input": {"b": 2},
                    "provider_executed": False,
                }
            ],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "call_id": "c1",
                    "tool_name": "look",
                    "outcome": "ok",
                    "value": None,
                    "provider_executed": False,
                }
            ],
        },
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Call ids
# ----------------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=80), max_size=30), rules)
def test_ids_are_allowed_unique_and_stable(raw: list[str], chosen: IdRules | None) -> None:
    first, again = CallIds(chosen), CallIds(chosen)
    named = [first.name(call_id) for call_id in raw]
    assert len(set(named)) == len(named)
    assert named == [again.name(call_id) for call_id in raw]
    assert all(map(chosen.allow, named)) if chosen else all(named)


def test_a_good_new_id_stays_and_a_reused_one_is_told_apart() -> None:
    """BP-24."""
    ids = CallIds(IdRules())
    assert ids.name("call_1") == "call_1"
    second = ids.name("call_1")
    assert second.startswith("call_1")
    assert ids.name(second) != second, "taken by the one before"
    assert ids.name("functions.look:0").startswith("functionslook0")
    assert len(ids.name("x" * 300)) == 64


def test_an_id_that_only_uniqueness_limits_keeps_any_characters() -> None:
    ids = CallIds()
    assert ids.name("fn.look:0 é") == "fn.look:0 é"
    assert ids.name("") != ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_length": 7},
        {"min_length": 9, "max_length": 8},
        {"charset": "abc"},
        {"charset": "0123456789abcdeff"},
    ],
)
def test_rules_without_room_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"allow|charset"):
        IdRules(**wrong)


def test_a_digest_that_is_taken_is_made_anew() -> None:
    taken = CallIds(NINE)
    derived = taken.name("too long for nine")
    ids = CallIds(NINE)
    assert ids.name(derived) == derived
    assert ids.name("too long for nine") not in (derived, "too long for nine")
