"""One answer from two records of it; one history from a client's and the stored one."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runner.core.transcript.reconcile import claimed_rows, merge_orphan, reconcile, reconcile_messages
from runner.core.transcript.tool_state import (
    Message,
    Part,
    answered,
    is_call,
    is_settled,
    with_approval,
    with_output,
)
from tests.core.test_repair_properties import answers, many

STEP = {"type": "step-start"}


def call(state: str, call_id: str = "c1", **fields: Any) -> Part:
    return {"type": "tool-look", "toolCallId": call_id, "state": state, "input": {"a": 1}, **fields}


def text(content: str, state: str = "done") -> Part:
    return {"type": "text", "text": content, "state": state}


def answer(*parts: Part, **fields: Any) -> Message:
    return {"id": "m", "role": "assistant", "parts": list(parts), **fields}


def both(stored: list[Part], replayed: list[Part]) -> list[Part]:
    parts: list[Part] = reconcile(answer(*stored), answer(*replayed))["parts"]
    return parts


# ----------------------------------------------------------------------------------------------------------------------
# Laws of `reconcile`
# ----------------------------------------------------------------------------------------------------------------------


@st.composite
def growing(draw: st.DrawFn) -> tuple[Message, Message]:
    """A message, and what there was of it at some moment before."""
    whole = draw(answers())
    for number, part in enumerate(whole["parts"]):
        if is_call(part):
            part["toolCallId"] = f"c{number}"
        if part["type"] == "text":
            part["text"] = f"text {number}"
    early = copy.deepcopy(whole)
    del early["parts"][draw(st.integers(0, len(early["parts"]))) :]
    if early["parts"]:
        last = early["parts"][-1]
        if last["type"] == "text":
            last.update(text=last["text"][: draw(st.integers(0, 6))], state="streaming")
        elif is_call(last) and last.get("state") == "output-available":
            early["parts"][-1] = {key: last[key] for key in last if key not in ("output", "preliminary")}
            early["parts"][-1]["state"] = "input-available"
    return whole, early


@many
@given(growing())
def test_whichever_is_ahead_wins(pair: tuple[Message, Message]) -> None:
    """BP-32: a full replay onto a part of itself is the replay, not the replay appended."""
    whole, early = pair
    assert reconcile(early, whole) == whole
    assert reconcile(whole, early) == whole
    assert reconcile(whole, whole) == whole


@many
@given(growing(), st.data())
def test_an_answer_of_the_client_is_never_lost(pair: tuple[Message, Message], data: st.DataObject) -> None:
    """I15: the replay does not know the answer; it may be ahead or behind."""
    whole, early = pair
    record, other = (early, whole) if data.draw(st.booleans()) else (whole, early)
    open_ = [part["toolCallId"] for part in record["parts"] if is_call(part) and not is_settled(part)]
    assume(open_)
    chosen = data.draw(st.sampled_from(open_))
    how = data.draw(st.sampled_from([_yes, _no, _output]))
    assume((found := answered(record["parts"], chosen, how)) is not None)
    assert found is not None
    index, parts = found
    merged = reconcile({**record, "parts": parts}, other)
    (told,) = [part for part in merged["parts"] if part.get("toolCallId") == chosen]
    twin = next((part for part in other["parts"] if part.get("toolCallId") == chosen), {})
    if is_settled(parts[index]) or "output" not in twin:
        assert (told["state"], told.get("output")) == (parts[index]["state"], parts[index].get("output"))
    assert len([p for p in merged["parts"] if is_call(p)]) == len(
        {p["toolCallId"] for p in merged["parts"] if is_call(p)}
    )


def _yes(part: Part) -> Part | None:
    return with_approval(part, True)


def _no(part: Part) -> Part | None:
    return with_approval(part, False, "no")


def _output(part: Part) -> Part | None:
    return with_output(part, "given", by_client=True)


@many
@given(answers(), answers())
def test_nothing_is_doubled_and_nothing_settled_is_lost(stored: Message, replayed: Message) -> None:
    """Even for two records that have nothing to do with each other."""
    parts = reconcile(stored, replayed)["parts"]
    ours, theirs = stored["parts"], replayed["parts"]
    assert not _calls_by_step(parts) - (_calls_by_step(ours) | _calls_by_step(theirs))
    results = [sum(map(is_settled, filter(is_call, side))) for side in (ours, theirs)]
    assert sum(map(is_settled, filter(is_call, parts))) >= max(results)


def _calls_by_step(parts: list[Part]) -> Counter[tuple[Any, ...]]:
    """How often each call is recorded, by the number of its step."""
    counted: Counter[tuple[Any, ...]] = Counter()
    step = 0
    for part in parts:
        step += part["type"] == "step-start"
        if is_call(part):
            counted[step, part["type"], part.get("toolName"), part["toolCallId"]] += 1
    return counted


# ----------------------------------------------------------------------------------------------------------------------
# Cases of `reconcile`
# ----------------------------------------------------------------------------------------------------------------------


def test_a_stored_answer_and_a_replay_that_went_on() -> None:
    """C256."""
    asked = call("approval-requested", approval={"id": "p", "descriptor": 1})
    stored = [STEP, text("Shall"), with_approval(asked, True) or {}]
    assert both(stored, [STEP, text("Shall I?"), asked, text("So")]) == [STEP, text("Shall I?"), stored[2], text("So")]


def test_a_result_of_the_replay_keeps_the_approval_that_was_given() -> None:
    given_ = call("approval-responded", approval={"id": "p", "approved": True, "reason": "ok"})
    ran = call("output-available", output=1)
    assert both([given_], [{**ran, "approval": {"id": "p"}}]) == [{**ran, "approval": given_["approval"]}]
    assert both([given_], [ran]) == [{**ran, "approval": given_["approval"]}]


def test_the_first_result_stands() -> None:
    """I4."""
    first, second = call("output-available", output=1), call("output-available", output=2)
    assert both([first], [second]) == [first]


@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested", "zz"])
def test_the_replay_is_right_about_an_open_call(state: str) -> None:
    assert both([call(state, title="a")], [call(state, title="b")]) == [call(state, title="b")]


def test_a_call_learns_its_late_input() -> None:
    asked = {key: value for key, value in call("approval-requested").items() if key != "input"}
    assert both([asked], [call("input-available", title="Look")]) == [call("approval-requested", title="Look")]


def test_an_answered_call_learns_its_title() -> None:
    yes = call("approval-responded", approval={"id": "p", "approved": True})
    assert both([yes], [call("approval-requested", title="Look")]) == [{**yes, "title": "Look"}]


def test_of_two_answers_the_last_one_counts() -> None:
    first = call("approval-responded", approval={"id": "p", "approved": True})
    last = call("approval-responded", approval={"id": "p", "approved": False, "reason": "changed"})
    assert both([first], [last]) == [last]


def test_a_character_cut_in_half_is_the_same_text() -> None:
    assert both([text("a\ud83d", "streaming")], [text("a😀 b")]) == [text("a😀 b")]
    assert both([text("a😀", "streaming")], [text("a\ud83d", "streaming")]) == [text("a😀", "streaming")]


def test_a_guess_at_the_input_gives_way_to_the_input() -> None:
    """I5: the answer was stored before the whole input came."""
    asked = call("approval-requested", approval={"id": "p"}, input={}, rawInput="{", _provisional=True)
    answered_ = with_approval(asked, True) or {}
    whole = call("approval-requested", approval={"id": "p"}, rawInput="{", _provisional=False)
    (merged,) = both([answered_], [whole])
    assert (merged["state"], merged["input"], merged["_provisional"]) == ("approval-responded", {"a": 1}, False)
    assert both([whole], [asked]) == [whole]
    done = with_output(asked, 1, by_client=True) or {}
    assert both([done], [whole]) == [done]
    guess = call("input-streaming", input={"b": 1})
    assert both([answered_], [guess]) == [answered_]
    hopeless = {key: value for key, value in guess.items() if key != "input"}
    assert both([guess], [hopeless]) == [hopeless]


def test_notes_go_with_the_record_whose_text_is_kept() -> None:
    ahead = {**answer(text("Hello", "streaming"), call("input-available")), "_fold": {"open": {"text": {"t": 0}}}}
    behind = {**answer(text("Hel", "streaming")), "_fold": {"open": {"text": {"t": 9}}}}
    assert reconcile(behind, ahead)["_fold"] == ahead["_fold"]
    assert reconcile(ahead, behind)["_fold"] == ahead["_fold"]
    longer = answer(text("Hello!"), call("input-available"), text("b"))
    assert "_fold" not in reconcile(
        {**ahead, "parts": [*ahead["parts"], text("b")]}, {**behind, "parts": longer["parts"][:2]}
    )
    assert "_fold" not in reconcile(longer, longer)


def test_where_they_contradict_the_replay_is_right_but_for_results() -> None:
    """A step that was asked again: its old words go, what its tool did stays."""
    done, lost = call("output-available", output=1), call("input-available", "c2")
    stored = [STEP, text("old words"), done, lost]
    assert both(stored, [STEP, text("new"), text("words")]) == [STEP, done, text("new"), text("words")]


def test_what_only_the_stored_message_has_stays_in_its_place() -> None:
    note = {"type": "data-note", "id": "n", "data": 1}
    stored = [note, STEP, text("a"), call("output-error", errorText="e"), text("b")]
    replayed = [{**note, "data": 2}, STEP, text("a"), call("input-available")]
    assert both(stored, replayed) == [{**note, "data": 2}, *stored[1:]]
    assert both(stored, []) == stored
    assert both([STEP, text("a"), STEP, text("c")], [STEP, text("ab")]) == [STEP, text("ab"), STEP, text("c")]


def test_a_reused_id_is_another_call_in_another_step() -> None:
    """BP-24."""
    one, two = call("output-available", output="one"), call("input-available")
    assert both([STEP, one], [STEP, call("input-available"), STEP, two]) == [STEP, one, STEP, two]
    assert both([call("input-available"), one], [two, two, two]) == [two, one, two]


def test_a_match_never_reaches_across_a_call() -> None:
    done = call("output-available", output=1)
    assert both([text("ab"), done], [text("x"), done, text("abc")]) == [text("x"), done, text("abc")]


def test_the_stored_id_stays_and_metadata_is_overlaid() -> None:
    stored, replayed = answer(metadata={"a": 1, "b": 1}), {**answer(metadata={"b": 2}), "id": "", "more": {}}
    assert reconcile(stored, replayed) == answer(metadata={"a": 1, "b": 2}, more={})
    assert reconcile(answer(metadata="x"), answer(metadata={"b": 2}))["metadata"] == {"b": 2}
    assert reconcile(answer(metadata="x"), answer())["metadata"] == "x"
    assert "metadata" not in reconcile(answer(), answer())
    assert reconcile({"parts": []}, answer())["id"] == "m"


# ----------------------------------------------------------------------------------------------------------------------
# Histories
# ----------------------------------------------------------------------------------------------------------------------


def row(message_id: str, *parts: Part, role: str = "assistant") -> Message:
    return {"id": message_id, "role": role, "parts": list(parts)}


def test_two_turns_that_reuse_an_id_are_two_messages() -> None:
    """BP-24, C257, C261."""
    stored = [row("a1", call("output-available", output="one"))]
    pending = row("a2", call("input-available", input={"a": 2}))
    assert reconcile_messages([stored[0], pending], stored) == [stored[0], pending]
    assert claimed_rows([pending], stored) == {}


def test_equal_copies_pair_in_order() -> None:
    """C258, C263."""
    stored = [row("s1", call("output-available", output=1)), row("s2", call("output-available", output=2))]
    incoming = [row("x", call("input-available")), row("y", call("approval-responded"))]
    first, second = reconcile_messages(incoming, stored)
    assert (first["id"], first["parts"][0]["output"]) == ("s1", 1)
    assert (second["id"], second["parts"][0]["output"]) == ("s2", 2)


def test_a_result_brings_its_own_field_only() -> None:
    """C259, C260."""
    stored = [row("s", call("output-error", errorText="e", output="stray", input={"a": 1}))]
    (merged,) = reconcile_messages([row("s", call("input-available", input={"mine": 1}))], stored)
    assert merged["parts"] == [call("output-error", errorText="e", input={"mine": 1})]
    bare = [row("s", call("output-denied")), row("t", call("zz", result=1))]
    denied, odd = reconcile_messages([row("s", call("approval-requested")), row("t", call("input-available"))], bare)
    assert (denied["parts"], odd["parts"]) == ([call("output-denied")], [call("input-available")])


@pytest.mark.parametrize("open_", ["input-available", "approval-requested", "approval-responded", "input-streaming"])
def test_a_stale_copy_is_dropped_unless_it_is_last(open_: str) -> None:
    """C262."""
    stored, question = [row("s", call("output-available", output=1))], row("u", role="user")
    copy_ = row("x", STEP, call(open_))
    assert reconcile_messages([stored[0], copy_, question], stored) == [stored[0], question]
    assert reconcile_messages([stored[0], copy_], stored) == [stored[0], copy_]
    for kept in (
        row("x"),
        row("x", text("a"), call(open_)),
        row("x", call(open_, "c9")),
        row("x", call("output-denied")),
    ):
        assert reconcile_messages([stored[0], kept, question], stored) == [stored[0], kept, question]


def test_a_message_with_calls_is_not_matched_by_its_words() -> None:
    """C264."""
    stored = [row("s", text("a")), row("u", text("a"), role="user")]
    mine = row("x", text("a"), call("input-available"))
    assert reconcile_messages([mine], stored) == [mine]
    assert reconcile_messages([row("x", text("a"))], stored)[0]["id"] == "s"
    assert reconcile_messages([mine], []) == [mine]


def test_a_message_without_news_is_the_same_object_but_for_its_id() -> None:
    stored = [row("s", call("output-available", output=1))]
    given_ = row("s", call("output-available", output=1), {"type": "tool-x"})
    (same,) = reconcile_messages([given_], stored)
    assert same["parts"] is given_["parts"]


def test_an_orphan_is_appended_without_the_calls_that_are_known() -> None:
    existing = answer(call("output-available", output=1), text("a"), metadata={"k": 1})
    incoming = answer(call("input-available"), call("input-available", "c2"), text("b"))
    assert merge_orphan(existing, incoming) == answer(
        *existing["parts"], call("input-available", "c2"), text("b"), metadata={"k": 1}
    )
