"""The provider view as messages of pydantic-ai: nothing dangling, nothing lost, a partial answer that can be continued.

What the view itself decides is tested where it lives; here is one case of each, to see that it arrives.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from runner.core.transcript.provider_view import DENIED, NOT_YET_RUN, WAITING
from runner.core.transcript.repair import INPUT_CUT, INTERRUPTED
from runner.core.turn.round import RoundRequest
from runner.errors import ModelRejected
from runner.models.prompt import Prompt, to_prompt

NAMED = {"pydantic_ai": {"provider_name": "anthropic"}}
SIGNED = {"pydantic_ai": {"signature": 'EqQ..é"\\', "provider_name": "anthropic"}}
THOUGHT = {"type": "reasoning", "text": "hm", "state": "done", "providerMetadata": SIGNED}


def user(*parts: dict[str, Any] | str) -> dict[str, Any]:
    return {
        "role": "user",
        "parts": [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts],
    }


def text(content: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **fields}


def call(state: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool-look", "toolCallId": "c1", "state": state, "input": {"a": 1}, **fields}


def searched(**fields: Any) -> dict[str, Any]:
    """A call that the provider ran itself."""
    return call("output-available", output={"b": 2}, providerExecuted=True, **fields)


def prompt(*messages: dict[str, Any], instructions: str | None = None) -> Prompt:
    return to_prompt(RoundRequest("r1", messages, instructions))


def said(*parts: dict[str, Any]) -> list[ModelMessage]:
    """The messages after the first question, when the answer so far is followed by another question."""
    return prompt(user("?"), {"role": "assistant", "parts": list(parts)}, user("!")).messages[1:]


def test_instructions_and_system_messages_go_with_every_request() -> None:
    system = {"role": "system", "parts": [text("Be brief.")]}
    messages = prompt(
        system, user("a"), {"role": "assistant", "parts": [text("b")]}, user("c"), instructions="Help."
    ).messages
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    assert [request.instructions for request in requests] == ["Help.\n\nBe brief."] * 2
    assert [type(message) for message in messages] == [ModelRequest, ModelResponse, ModelRequest]


def test_no_question_at_all_still_carries_the_instructions() -> None:
    (only,) = prompt(instructions="Begin.").messages
    assert isinstance(only, ModelRequest)
    assert only.instructions == "Begin."


def test_files_go_by_value_or_as_web_links() -> None:
    png = {"type": "file", "mediaType": "image/png", "url": "https://x.test/a"}
    pdf = {"type": "file", "mediaType": "application/pdf", "url": "https://x.test/b"}
    data = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGk="}
    (request,) = prompt(user("see", png, pdf, data, {"type": "data-x", "data": 1})).messages
    (part,) = request.parts
    assert isinstance(part, UserPromptPart)
    assert [type(item) for item in part.content] == [str, ImageUrl, DocumentUrl, BinaryContent]
    assert isinstance(part.content[3], BinaryContent)
    assert part.content[3].data == b"hi"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://x", "data:text/plain,unencoded"])
def test_other_links_are_refused(url: str) -> None:
    with pytest.raises(ModelRejected, match="base64"):
        prompt(user({"type": "file", "mediaType": "image/png", "url": url}))


def test_a_thought_goes_back_only_with_its_provider() -> None:
    cut = {**THOUGHT, "state": "streaming"}
    elsewhere = {**THOUGHT, "providerMetadata": {"anthropic": {"signature": "s"}}}
    response = said(THOUGHT, {"type": "reasoning", "text": "unsigned"}, cut, elsewhere, text("Hi"))[0]
    thought = ThinkingPart("hm", signature='EqQ..é"\\', provider_name="anthropic")
    assert list(response.parts) == [thought, TextPart("Hi")]


def test_neighbouring_texts_are_one_and_empty_ones_are_gone() -> None:
    step = {"type": "step-start"}
    assert list(said(step, text("On"), text("ce"), step, text(" up"), text(""))[0].parts) == [TextPart("Once up")]


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "step-start"}],
        [text(" \n")],
        [THOUGHT],
        [text(" "), THOUGHT],
        [searched()],
        [THOUGHT, searched()],
        [THOUGHT, {"type": "file", "url": "https://x.test/a", "mediaType": "image/png"}],
    ],
)
def test_an_answer_that_says_nothing_is_left_out(parts: list[dict[str, Any]]) -> None:
    (only,) = prompt(user("a"), {"role": "assistant", "parts": parts}, user("b")).messages
    assert [word for part in only.parts if isinstance(part, UserPromptPart) for word in part.content] == ["a", "b"]


def test_a_thought_that_leads_to_nothing_is_left_out() -> None:
    assert list(said(THOUGHT, text("Hi"), THOUGHT)[0].parts)[1:] == [TextPart("Hi")]


def test_a_file_in_an_answer_goes_back_by_value() -> None:
    data = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "providerMetadata": NAMED}
    (part,) = said(data)[0].parts
    assert isinstance(part, FilePart)
    assert (part.content.data, part.provider_name) == (b"hi", "anthropic")


def test_what_the_user_said_in_between_stands_in_between() -> None:
    steering = {"type": "steering-message", "id": "s1", "parts": [text("Hurry!")]}
    first, between, second, _ = said(text("One"), steering, text("two"))
    assert [list(response.parts) for response in (first, second)] == [[TextPart("One")], [TextPart("two")]]
    assert [part.content for part in between.parts if isinstance(part, UserPromptPart)] == ["Hurry!"]


@pytest.mark.parametrize(
    ("part", "content", "outcome"),
    [
        (call("output-available", output={"b": 2}), {"b": 2}, "success"),
        (call("output-available", output=1, preliminary=True), INTERRUPTED, "interrupted"),
        (call("output-error", errorText="boom"), "boom", "failed"),
        (call("output-denied"), DENIED, "denied"),
        (
            call("approval-responded", approval={"id": "p", "approved": False, "reason": "no"}),
            f"{DENIED} Reason: no",
            "denied",
        ),
        (call("approval-responded", approval={"id": "p", "approved": True}), NOT_YET_RUN, "interrupted"),
        (call("approval-requested", approval={"id": "p"}), WAITING, "interrupted"),
        (call("input-available"), INTERRUPTED, "interrupted"),
        (call("input-streaming"), INPUT_CUT, "interrupted"),
    ],
)
def test_every_call_has_exactly_one_result_right_after_it(part: dict[str, Any], content: object, outcome: str) -> None:
    """I6."""
    response, request = said(text("Look."), part)
    assert list(response.parts) == [TextPart("Look."), ToolCallPart("look", {"a": 1}, "c1")]
    (result,) = (item for item in request.parts if isinstance(item, ToolReturnPart))
    assert (result.tool_call_id, result.tool_name, result.content, result.outcome) == ("c1", "look", content, outcome)


def test_arguments_are_always_an_object() -> None:
    listed = {"type": "dynamic-tool", "toolName": "x", "toolCallId": "c2", "state": "output-error", "input": [1]}
    raw = {"type": "tool-y", "toolCallId": "c3", "state": "output-error", "rawInput": '{"a', "errorText": "cut"}
    packed = call("output-available", output=1, input='{"a": 1}')
    calls = [part for part in said(listed, raw, packed)[0].parts if isinstance(part, ToolCallPart)]
    assert [(part.tool_name, part.args) for part in calls] == [("x", {}), ("y", {}), ("look", {"a": 1})]


def test_a_reused_call_id_is_told_apart() -> None:
    """I6."""
    one, other = call("output-available", output=1), call("output-available", output=2)
    calls, results, again, more, *_ = said(one, {"type": "step-start"}, other, {"type": "step-start"}, text("Done."))
    asked = [part.tool_call_id for entry in (calls, again) for part in entry.parts if isinstance(part, ToolCallPart)]
    told = [part for entry in (results, more) for part in entry.parts if isinstance(part, ToolReturnPart)]
    assert [(part.tool_call_id, part.content) for part in told] == list(zip(asked, [1, 2], strict=True))
    assert len(set(asked)) == 2


def test_a_call_goes_back_with_its_providers_mark() -> None:
    mark = {"id": "fc1", "provider_name": "openai", "provider_details": {"n": 1}}
    (part,) = said(call("output-available", output=1, callProviderMetadata={"pydantic_ai": mark}))[0].parts
    assert part == ToolCallPart("look", {"a": 1}, "c1", id="fc1", provider_name="openai", provider_details={"n": 1})


@pytest.mark.parametrize("named_on", ["callProviderMetadata", "resultProviderMetadata"])
def test_what_a_provider_ran_stays_inside_its_answer(named_on: str) -> None:
    response = said(THOUGHT, searched(**{named_on: NAMED}), text("Found."))[0]
    thought, asked, told, found = response.parts
    assert isinstance(thought, ThinkingPart)
    assert asked == NativeToolCallPart("look", {"a": 1}, "c1", provider_name="anthropic")
    assert isinstance(told, NativeToolReturnPart)
    assert (told.tool_call_id, told.content, told.outcome) == ("c1", {"b": 2}, "success")
    assert told.provider_name == "anthropic"
    assert found == TextPart("Found.")


def test_what_an_unnamed_provider_ran_is_left_out_whole() -> None:
    assert list(said(text("I look. "), searched(), text("Found."))[0].parts) == [TextPart("I look. Found.")]


def test_a_partial_answer_keeps_its_order_around_what_the_provider_ran() -> None:
    parts = [text("I look. "), searched(callProviderMetadata=NAMED), text("Fou"), THOUGHT, text("nd ")]
    made = prompt(user("?"), {"role": "assistant", "parts": parts})
    kinds = [TextPart, NativeToolCallPart, NativeToolReturnPart, ThinkingPart, TextPart]
    assert [type(part) for part in made.messages[-1].parts] == kinds
    assert (made.messages[-1].parts[-1], made.held) == (TextPart("Found"), " ")


def test_a_partial_answer_may_end_with_what_the_provider_ran() -> None:
    made = prompt(user("?"), {"role": "assistant", "parts": [searched(callProviderMetadata=NAMED)]})
    assert [type(part) for part in made.messages[-1].parts] == [NativeToolCallPart, NativeToolReturnPart]


@pytest.mark.parametrize(
    ("parts", "held"),
    [
        ([THOUGHT, text("\n\n")], "\n\n"),
        ([text("Look. "), call("output-available", output=1)], ""),
        ([call("output-available", output=1), {"type": "step-start"}, text(" ")], " "),
        ([text("Look. "), {"type": "steering-message", "id": "s1", "parts": [text("Hurry!")]}], ""),
    ],
)
def test_white_space_alone_is_held_but_not_sent(parts: list[dict[str, Any]], held: str) -> None:
    made = prompt(user("?"), {"role": "assistant", "parts": parts})
    assert made.held == held
    assert isinstance(made.messages[-1], ModelRequest)


def test_a_partial_answer_is_one_text_without_white_space_at_its_end() -> None:
    parts = [text("The sea "), THOUGHT, text("is \n")]
    made = prompt(user("?"), {"role": "assistant", "parts": parts})
    assert made.held == " \n"
    assert [type(part) for part in made.messages[-1].parts] == [ThinkingPart, TextPart]
    assert made.messages[-1].parts[-1] == TextPart("The sea is")


@pytest.mark.parametrize("parts", [[text(" ")], [THOUGHT], []])
def test_a_partial_without_text_is_asked_anew(parts: list[dict[str, Any]]) -> None:
    assert [type(message) for message in prompt(user("?"), {"role": "assistant", "parts": parts}).messages] == [
        ModelRequest
    ]


def test_lone_surrogates_do_not_reach_the_provider() -> None:
    (request,) = prompt(user("a\ud83d"), instructions="\ud83d\ude00").messages
    assert isinstance(request, ModelRequest)
    (part,) = request.parts
    assert isinstance(part, UserPromptPart)
    assert (request.instructions, part.content) == ("😀", "a\ufffd")
