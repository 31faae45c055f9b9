"""Repair, case by case: which calls get a result, what it says, and what the author's hook may do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runner.agent import Agent
from runner.core.transcript.provider_view import as_json, provider_view
from runner.core.transcript.repair import INPUT_CUT, INTERRUPTED, NEVER_RUN, SUPERSEDED, Repair, repair
from runner.core.transcript.tool_state import Message, Part, unfinished_calls, with_approval, with_output

USER = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "next"}]}


def call(state: str, call_id: str = "c1", **fields: Any) -> Part:
    return {"type": "tool-look", "toolCallId": call_id, "state": state, "input": {"a": 1}, **fields}


def answer(*parts: Part) -> Message:
    return {"id": "a", "role": "assistant", "parts": list(parts)}


def only(result: Repair) -> Part:
    (part,) = (part for message in result.messages for part in message["parts"] if message["role"] == "assistant")
    return part


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (call("input-streaming"), INPUT_CUT),
        (call("input-available"), INTERRUPTED),
        (call("approval-responded", approval={"id": "p", "approved": True}), NEVER_RUN),
        (call("output-available", output=1, preliminary=True), INTERRUPTED),
        (call("zz"), INTERRUPTED),
    ],
)
def test_an_interrupted_call_gets_an_error_that_says_so(part: Part, text: str) -> None:
    """BP-21; C239, C249."""
    result = repair([answer(part), USER])
    approval = {"approval": part["approval"]} if "approval" in part else {}
    assert only(result) == call("output-error", errorText=text, **approval)
    assert (result.touched, result.repaired, result.messages[1]) == ((0,), ("c1",), USER)


def test_nothing_to_repair_is_the_same_list() -> None:
    """C240 to C242, C246, C254."""
    messages = [
        USER,
        answer(call("output-available", output=None), call("output-error", "c2", errorText="boom")),
        answer({"type": "tool-x", "state": "input-available"}, {"type": "data-x", "toolCallId": "c", "data": 1}),
        {"role": "assistant"},
        {"role": "tool", "parts": [call("input-available")]},
        answer(call("approval-responded", approval={"id": "p", "approved": True})),
    ]
    result = repair(messages)
    assert result == Repair(messages)
    assert result.messages is messages


def test_input_becomes_an_object_also_of_a_settled_call() -> None:
    """C243, C244."""
    settled, open_ = call("output-available", output=1, input=[]), call("input-available", "c2", input="x")
    seen: list[Part] = []
    result = repair([answer(settled, open_)], seen.append)
    assert seen == [call("input-available", "c2", input={})]
    assert (result.normalized, result.repaired) == (("c1", "c2"), ("c2",))
    assert result.messages[0]["parts"][0] == call("output-available", output=1, input={})


def test_a_hook_turns_a_question_into_text() -> None:
    """C238."""
    ask = {"type": "tool-ask_user", "toolCallId": "c1", "state": "input-available", "input": {"prompt": "Which city?"}}

    class Asking(Agent):
        def repair_interrupted_tool_part(self, part: Part) -> Part | None:
            return {"type": "text", "text": part["input"]["prompt"]} if part["type"] == "tool-ask_user" else None

    result = repair([answer(ask, call("input-available", "c2")), USER], Asking().repair_interrupted_tool_part)
    text, other = result.messages[0]["parts"]
    assert text == {"type": "text", "text": "Which city?"}
    assert other == call("output-error", "c2", errorText=INTERRUPTED)
    assert as_json(provider_view(result.messages))[0]["content"][0] == {"type": "text", "text": "Which city?"}


def test_an_agent_leaves_repair_to_the_default() -> None:
    messages = [answer(call("input-available"))]
    assert repair(messages, Agent().repair_interrupted_tool_part) == repair(messages)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (call("input-available", more=1), "state 'input-available', which has no result"),
        (call("output-available", output=1, preliminary=True), "which has no result"),
        (call("output-error", "c9", errorText="e"), "keep toolCallId 'c1'"),
        ({"type": "tool-look", "state": "output-error"}, "keep toolCallId 'c1'"),
        ("text", "returned str, not a part"),
        ({"text": "x"}, "not a part"),
        ({"type": "data-x", "data": {1, 2}}, "not JSON"),
        ({"type": "data-x", "data": float("nan")}, "not JSON"),
    ],
)
def test_a_hook_that_breaks_its_contract_is_reported_and_the_default_stands(returned: Any, said: str) -> None:
    """C247."""
    result = repair([answer(call("input-available"))], lambda part: returned)
    assert only(result) == call("output-error", errorText=INTERRUPTED)
    (problem,) = result.problems
    assert (problem.call_id, problem.tool_name, problem.error) == ("c1", "look", None)
    assert said in problem.text
    assert "default result" in problem.text


def test_a_hook_that_raises_is_reported_and_the_default_stands() -> None:
    error = LookupError("gone")

    def hook(part: Part) -> Part:
        part["input"]["a"] = 2
        raise error

    result = repair([answer(call("input-available"))], hook)
    assert only(result) == call("output-error", errorText=INTERRUPTED)
    assert result.problems[0].error is error
    assert "raised LookupError: gone" in result.problems[0].text


def test_a_cancelled_turn_is_not_a_problem_of_the_hook() -> None:
    def hook(part: Part) -> Part:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        repair([answer(call("input-available"))], hook)


def test_the_part_a_hook_returns_is_stored_as_a_value_of_its_own() -> None:
    settled = call("output-available", output={"b": 1}, input='{"a":1}', _provisional=True)
    stored = only(repair([answer(call("input-available"))], lambda part: settled))
    assert stored == call("output-available", output={"b": 1})
    settled["output"]["b"] = 2
    assert stored["output"] == {"b": 1}


def test_a_call_that_waits_for_a_human_is_left_alone() -> None:
    asked, question = call("approval-requested", approval={"id": "p"}, input=""), call("input-available", "c2")
    messages = [USER, answer(asked, question)]
    assert repair(messages, client_tools={"look"}).messages is messages
    assert unfinished_calls(messages) == ["c1", "c2"]


def test_a_new_message_moves_past_what_waited() -> None:
    """BP-19: exactly one result that says not approved; the late answer finds a settled call."""
    asked = call("approval-requested", approval={"id": "p", "descriptor": {"d": 1}})
    question = call("input-available", "c2")
    result = repair([answer(asked, question), USER], client_tools={"look"})
    refused, unanswered = result.messages[0]["parts"]
    approval = {"id": "p", "descriptor": {"d": 1}, "approved": False, "reason": SUPERSEDED}
    assert refused == call("output-denied", approval=approval)
    assert unanswered == call("output-error", "c2", errorText=SUPERSEDED)
    assert with_approval(refused, True) is None
    assert with_output(unanswered, 1, by_client=True) is None
    first, results, second = as_json(provider_view(result.messages))
    assert [item["call_id"] for item in results["content"]] == ["c1", "c2"]
    assert SUPERSEDED in results["content"][0]["value"]
    assert (first["role"], second["role"]) == ("assistant", "user")


@pytest.mark.parametrize("approval", [None, {"descriptor": 1}])
def test_a_request_without_an_id_is_refused_under_the_id_of_the_call(approval: Any) -> None:
    part = only(repair([answer(call("approval-requested", approval=approval)), USER]))
    assert (part["approval"]["id"], part["approval"]["approved"]) == ("c1", False)


@pytest.mark.parametrize(("superseded", "kept"), [(False, True), (True, False)])
def test_the_caller_may_say_whether_waiting_calls_are_superseded(superseded: bool, kept: bool) -> None:
    asked = call("approval-requested", approval={"id": "p"})
    for messages in ([answer(asked)], [answer(asked), USER]):
        assert (repair(messages, superseded=superseded).messages is messages) is kept


def test_an_approved_call_waits_for_its_continuation_only() -> None:
    """C248 to C252."""
    yes = call("approval-responded", approval={"id": "p", "approved": True})
    no = call("approval-responded", "c2", approval={"id": "q", "approved": False})
    passed = [answer(yes, no), USER]
    assert repair(passed, continuation=True).messages is passed
    assert repair([USER, answer(yes, no)]).touched == ()
    ran, denied = repair(passed, lambda part: None).messages[0]["parts"]
    assert ran == {**yes, "state": "output-error", "errorText": NEVER_RUN}
    assert denied == {**no, "state": "output-denied"}


def test_a_denial_is_not_the_hooks_to_change() -> None:
    no = call("approval-responded", approval={"id": "q", "approved": False})
    result = repair([answer(no), USER], lambda part: {"type": "text", "text": "?"})
    assert only(result) == {**no, "state": "output-denied"}


def test_one_hole_deep_inside_is_found() -> None:
    """BP-22."""
    sound = [USER, answer(call("output-available", output=1))] * 250
    messages = [*sound[:463], answer(call("input-available")), *sound[464:]]
    result = repair(messages)
    assert (result.touched, len(result.messages)) == ((463,), 500)
    assert all(
        new is old for index, (new, old) in enumerate(zip(result.messages, messages, strict=True)) if index != 463
    )


def test_a_reused_id_keeps_to_its_own_turn() -> None:
    """BP-24."""
    one = answer(call("output-available", "r", output="one"))
    messages = [one, USER, answer(call("input-available", "r")), USER, answer(call("input-available", "r"))]
    result = repair(messages)
    assert result.messages[0] is one
    assert [message["parts"][0].get("output") for message in result.messages if message["role"] == "assistant"] == [
        "one",
        None,
        None,
    ]
    assert result.repaired == ("r", "r")


def test_two_records_of_one_call_are_one_and_the_first_settled_wins() -> None:
    step = {"type": "step-start"}
    late, first = call("input-streaming", input='{"a":1}'), call("output-error", errorText="e")
    second = call("output-available", output=2)
    other = call("input-available", input={"a": 2})
    result = repair([answer(step, late, first, other, second, step, second)], client_tools={"look"})
    assert result.messages[0]["parts"] == [step, first, other, step, second]
    assert (result.doubled, result.repaired) == (("c1", "c1"), ())


def test_of_two_open_records_the_furthest_stays() -> None:
    asked = call("approval-requested", approval={"id": "p"})
    result = repair([answer(call("zz"), asked, call("input-available"))])
    assert result.messages[0]["parts"] == [asked]


def test_calls_that_a_hook_made_the_same_are_one() -> None:
    two = answer(call("input-available"), call("input-available", input={"a": 2}))
    once = repair([two], lambda part: {**part, "state": "output-available", "output": part["input"], "input": {}})
    assert once.messages[0]["parts"] == [call("output-available", output={"a": 1}, input={})]
    assert repair(once.messages).messages is once.messages


def test_a_call_that_is_issued_again_is_left_in_the_last_step_only() -> None:
    step, open_ = {"type": "step-start"}, call("input-available")
    result = repair([answer(open_), USER, answer(open_, step, open_)], leave={"c1"})
    earlier, last = result.messages[0]["parts"], result.messages[2]["parts"]
    assert [part["state"] for part in (*earlier, last[0], last[2])] == [
        "output-error",
        "output-error",
        "input-available",
    ]


def test_what_is_no_part_stays_where_it_is() -> None:
    (message,) = repair([answer(None, call("input-available"), 7)]).messages  # type: ignore[arg-type]
    assert message["parts"] == [None, call("output-error", errorText=INTERRUPTED), 7]


def test_an_error_stands_beside_a_given_approval_only() -> None:
    asked = call("input-available", approval={"id": "p"})
    assert only(repair([answer(asked)])) == call("output-error", errorText=INTERRUPTED)


def test_fields_that_others_wrote_stay() -> None:
    """I16."""
    ours = call("input-available", _theirs={"x": 1}, _provisional=True)
    message = {**answer(ours), "_fold": {"open": {}}, "extra": 1}
    (repaired,) = repair([message]).messages
    assert repaired["parts"] == [call("output-error", errorText=INTERRUPTED, _theirs={"x": 1})]
    assert (repaired["_fold"], repaired["extra"]) == ({"open": {}}, 1)


def test_notes_that_point_at_parts_go_when_a_part_goes() -> None:
    twice = [call("output-available", output=1), call("input-available"), {"type": "text", "text": "a"}]
    (repaired,) = repair([{**answer(*twice), "_fold": {"open": {"text": {"t": 2}}}}]).messages
    assert "_fold" not in repaired


@pytest.mark.parametrize("approval", [True, 5, "x", [1], None])
def test_an_approval_that_is_no_object_costs_no_turn(approval: Any) -> None:
    result = repair([answer(call("input-available", approval=approval))])
    assert only(result) == call("output-error", errorText=INTERRUPTED)


def test_a_part_that_is_too_large_or_too_deep_is_reported_and_the_default_stands() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    for returned in ({"type": "text", "text": "x" * 70_000}, {"type": "data-x", "data": deep}):
        result = repair([answer(call("input-available"))], lambda part, returned=returned: returned)
        assert only(result) == call("output-error", errorText=INTERRUPTED)
        assert "cannot" in result.problems[0].text or "stored" in result.problems[0].text


def test_what_a_hook_returns_is_what_a_later_attempt_reads() -> None:
    result = repair([answer(call("input-available"))], lambda part: {"type": "data-x", "data": (1, {2: 3})})
    assert only(result) == {"type": "data-x", "data": [1, {"2": 3}]}
