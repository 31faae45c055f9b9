"""Tool calls in the fold: late input, first results, and what a half-streamed input is worth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.core.transcript import chunk
from runner.core.transcript.chunk import Chunk, to_bytes
from runner.core.transcript.reducer import Effect, Fold, fold_all, public
from runner.core.transcript.stored_message import provisional_calls
from runner.core.transcript.wire import Why

START: Chunk = {"type": "tool-input-start", "toolCallId": "c", "toolName": "read"}
REQUEST: Chunk = {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p", "reason": "why"}
GRANT: Chunk = {"type": "tool-approval-response", "approvalId": "p", "approved": True}
RESULT: Chunk = {"type": "tool-output-available", "toolCallId": "c", "output": 1}


def delta(text: str, call: str = "c") -> Chunk:
    return {"type": "tool-input-delta", "toolCallId": call, "inputTextDelta": text}


def available(value: Any, **more: Any) -> Chunk:
    return {"type": "tool-input-available", "toolCallId": "c", "toolName": "read", "input": value, **more}


def call(*chunks: Chunk) -> dict[str, Any]:
    """The first tool part that these chunks make."""
    found: dict[str, Any] = next(part for part in fold_all("m", chunks).message()["parts"] if "toolCallId" in part)
    return found


def effect(*chunks: Chunk) -> Effect:
    """What became of the last chunk."""
    return fold_all("m", chunks[:-1]).apply(chunks[-1])


def test_a_call_from_its_start_to_its_result() -> None:
    """C203."""
    assert call(START) == {"type": "tool-read", "toolCallId": "c", "state": "input-streaming"}
    assert call(START, delta('{"a":')) == {**call(START), "input": {}, "rawInput": '{"a":'}
    assert call(START, delta('{"a":'), available({"a": 1}))["state"] == "input-available"
    assert call(START, available({"a": 1}), RESULT) == {
        "type": "tool-read",
        "toolCallId": "c",
        "state": "output-available",
        "input": {"a": 1},
        "output": 1,
    }


@pytest.mark.parametrize("repeated", [START, delta("1"), available({"a": 2})])
@pytest.mark.parametrize("state", [(RESULT,), (REQUEST, GRANT)], ids=["settled", "answered"])
def test_a_replayed_input_is_passed_over_without_a_word(repeated: Chunk, state: tuple[Chunk, ...]) -> None:
    """C204, C229."""
    before = (START, available({"a": 1}), *state)
    assert effect(*before, repeated) == Effect(())
    assert call(*before, repeated) == call(*before)


@pytest.mark.parametrize(
    ("text", "value"), [('{"path":"a.txt"}', {"path": "a.txt"}), ('{"path":', {}), ("[1]", [1]), ("abc", None)]
)
def test_what_was_streamed_before_the_approval_request_is_parsed(text: str, value: Any) -> None:
    """C211, C212, C224; the input is kept as it is, as at the AI SDK."""
    part = call(START, delta(text), REQUEST)
    assert (part["state"], part.get("input")) == ("approval-requested", value)


@pytest.mark.parametrize("before", [(), (delta('{"path":'),), (delta('{"path":"b.txt"}'),)])
def test_late_input_fills_what_is_missing_or_provisional(before: tuple[Chunk, ...]) -> None:
    """C213, C214, C218, C221."""
    late = available({"path": "a.txt"}, title="T", providerMetadata={"p": {"n": 1}}, unheard=1)
    part = call(START, *before, REQUEST, late)
    assert (part["state"], part["input"], part["title"]) == ("approval-requested", {"path": "a.txt"}, "T")
    assert part["callProviderMetadata"] == {"p": {"n": 1}}
    assert "rawInput" not in part
    assert effect(START, *before, REQUEST, late).forward == (late, REQUEST)


def test_late_input_does_not_replace_canonical_input() -> None:
    """C215, C217: clients are told what we hold."""
    stream = (START, delta("{"), available({"a": 1}), REQUEST)
    late = available({"a": 2}, title="T")
    assert call(*stream, late) == call(*stream)
    assert effect(*stream, late).forward == (available({"a": 1}), REQUEST)
    assert effect(START, REQUEST, available({"a": 1}), available({"a": 2})).forward[0] == available({"a": 1})


def test_late_input_after_the_answer_is_kept_and_sent_to_nobody() -> None:
    """C220: sending it would ask again."""
    stream = (START, delta('{"a":'), REQUEST, GRANT, available({"a": 1}, title="T"))
    assert effect(*stream) == Effect(())
    part = call(*stream)
    assert (part["state"], part["input"], "title" in part) == ("approval-responded", {"a": 1}, False)
    assert call(*stream, available({"a": 2}))["input"] == {"a": 1}


def test_the_provisional_mark_survives_storage_and_is_shown_to_nobody() -> None:
    """C225, C226."""
    fold = fold_all("m", [START, delta('{"path":'), REQUEST])
    for again in (Fold.of(json.loads(to_bytes(fold.stored()))), Fold.load(json.loads(to_bytes(fold.dump())))):
        assert provisional_calls(again.stored()) == ["c"]
        again.apply(available({"path": "a.txt"}))
        assert provisional_calls(again.stored()) == []
        assert again.message()["parts"][0]["input"] == {"path": "a.txt"}
    assert not any(key.startswith("_") for key in (*public(fold.stored()), *public(fold.stored())["parts"][0]))


def test_what_was_filled_after_the_answer_is_not_provisional_again() -> None:
    fold = fold_all("m", [START, delta('{"a":'), REQUEST, GRANT, available({"a": 1})])
    again = Fold.of(json.loads(to_bytes(fold.stored())))
    assert again.message()["parts"][0]["rawInput"] == '{"a":'
    again.apply(available({"a": 2}))
    assert again.message()["parts"][0]["input"] == {"a": 1}


def test_an_approval_without_an_id_cannot_be_asked_again() -> None:
    stored = {"type": "tool-read", "toolCallId": "c", "state": "approval-requested"}
    fold = Fold.of({"id": "m", "role": "assistant", "parts": [stored]})
    assert fold.apply(available({"a": 1})) == Effect(())
    assert fold.message()["parts"] == [{**stored, "input": {"a": 1}}]


@pytest.mark.parametrize(
    "second",
    [
        {**RESULT, "output": 2},
        {"type": "tool-output-error", "toolCallId": "c", "errorText": "e"},
        {"type": "tool-output-denied", "toolCallId": "c"},
        {"type": "tool-input-error", "toolCallId": "c", "toolName": "read", "input": 0, "errorText": "e"},
        REQUEST,
    ],
)
def test_the_first_result_stays(second: Chunk) -> None:
    """I4, C205, C207, C208."""
    first = (START, available({}), RESULT)
    assert effect(*first, second) == Effect(())
    assert call(*first, second) == call(*first)


def test_a_preliminary_result_becomes_final() -> None:
    early = {**RESULT, "preliminary": True}
    assert call(START, available({}), early)["preliminary"] is True
    assert "preliminary" not in call(START, available({}), early, RESULT)


@pytest.mark.parametrize(
    "stray", [delta("{"), RESULT, REQUEST, GRANT, {"type": "tool-output-denied", "toolCallId": "c"}]
)
def test_what_speaks_of_an_unknown_call_is_refused(stray: Chunk) -> None:
    refused = effect(stray)
    assert refused.refusal is not None
    assert (refused.forward, refused.rejected, refused.refusal.why) == ((), True, Why.UNFITTING)


def test_a_call_of_one_id_in_two_steps_is_two_calls() -> None:
    """BP-23."""
    step: list[Chunk] = [chunk.start_step(), START, available({"n": 1}), RESULT, chunk.finish_step()]
    again: list[Chunk] = [chunk.start_step(), START, available({"n": 2}), {**RESULT, "output": 2}]
    parts = [part for part in fold_all("m", [*step, *again]).message()["parts"] if "toolCallId" in part]
    assert [(part["input"]["n"], part["output"]) for part in parts] == [(1, 1), (2, 2)]


def test_a_call_that_goes_on_in_a_later_step_leaves_its_first_part_as_it_was() -> None:
    fold = fold_all("m", [chunk.start_step(), START, delta('{"a":1'), chunk.start_step(), delta(',"b":2}')])
    first, second = (part for part in fold.message()["parts"] if "toolCallId" in part)
    assert (first["input"], second["input"]) == ({"a": 1}, {"a": 1, "b": 2})


def test_reset_step_keeps_the_input_of_an_earlier_step_and_forgets_how_to_go_on() -> None:
    fold = fold_all("m", [START, delta('{"a":1'), chunk.start_step(), START, chunk.reset_step()])
    assert [part.get("input") for part in fold.message()["parts"] if "toolCallId" in part] == [{"a": 1}]
    fold.apply(chunk.reset_step())
    assert fold.apply(delta("}")).rejected


def test_a_dynamic_call_that_goes_on_in_a_later_step_shows_its_raw_text_from_the_second_delta_on() -> None:
    """As at stock clients."""
    fold = fold_all("m", [{**START, "dynamic": True}, chunk.start_step(), delta("[1")])
    assert fold.message()["parts"][-1] == {**call({**START, "dynamic": True}), "input": [1]}
    fold.apply(delta(",2"))
    assert fold.message()["parts"][-1]["rawInput"] == "[1,2"


def test_notes_that_fit_no_part_are_not_believed() -> None:
    parts = [{"type": "text", "text": "a", "state": "streaming"}, {"type": "reasoning", "text": 5}]
    ids = {"text": {"1": 0, "2": 0, "3": 1, "4": 9, "5": "0"}, "reasoning": {"6": 1}}
    notes = {"open": ids, "calls": {"c": {"text": "[", "toolName": 5}, "d": 5}}
    fold = Fold.of({"id": "m", "role": "assistant", "parts": parts, "_fold": notes})
    assert fold.closing() == [{"type": "text-end", "id": "1"}]
    assert fold.apply(delta("1")).rejected
    assert fold.has_step_parts()


def test_text_input_is_not_parsed() -> None:
    assert call({**START, "inputEncoding": "text"}, delta("{"), delta("x"))["input"] == "{x"


def test_a_message_without_notes_goes_on_with_its_streaming_calls() -> None:
    parts = [
        {"type": "dynamic-tool", "toolName": "t", "toolCallId": "d", "state": "input-streaming", "rawInput": "[1"},
        {"type": "tool-t", "toolCallId": "s", "state": "input-streaming"},
        {"type": "text", "text": "x", "state": "streaming"},
    ]
    fold = Fold.of({"id": "m", "role": "assistant", "parts": parts, "createdAt": 5})
    for item in (delta(",2]", "d"), delta("{}", "s")):
        assert not fold.apply(item).rejected
    message = fold.message()
    assert [part.get("input") for part in message["parts"]] == [[1, 2], {}, None]
    assert message["createdAt"] == 5
    assert fold.apply({"type": "text-delta", "id": "x", "delta": "y"}).rejected


def test_a_message_of_a_user_is_not_continued() -> None:
    fold = Fold.of({"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]})
    assert fold.message() == {"id": "u", "role": "assistant", "parts": []}


def test_a_start_with_another_id_begins_anew_and_so_does_the_first_of_a_replay() -> None:
    stream: list[Chunk] = [{"type": "start", "messageMetadata": {"a": 1}}, chunk.start_step(), START]
    assert fold_all("m", [*stream, chunk.start("other")]).message() == {"id": "other", "role": "assistant", "parts": []}
    stored = fold_all("m", stream).message()
    replay = Fold.of(stored, replay=True)
    again = Fold.load(json.loads(to_bytes(replay.dump())))
    for fold in (replay, again):
        for item in (*stream, *stream[:1]):
            fold.apply(item)
        assert fold.message() == stored


def test_metadata_that_does_not_fit_is_refused_whole() -> None:
    fold = fold_all("m", [{"type": "start", "messageMetadata": "text"}])
    for kind in ("start", "finish", "message-metadata"):
        assert fold.apply({"type": kind, "messageMetadata": {"a": 1}}).rejected
    assert (fold.message()["metadata"], fold.finish_reason) == ("text", None)


def test_a_version_of_a_step_is_news_when_it_is_larger_than_every_one_that_was_dropped() -> None:
    said: list[Chunk] = [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "ab😀"}]
    fold = fold_all("m", [chunk.start_step(), *said])
    assert fold.has_news()
    for item in (chunk.reset_step(), *said):
        fold.apply(item)
    again = Fold.load(json.loads(to_bytes(fold.dump())))
    for each in (fold, again):
        assert not each.has_news()
        each.apply(START)
        assert each.has_news()
        each.apply(chunk.finish_step())
        assert each.given_up == 0
