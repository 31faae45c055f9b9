"""UI messages as provider messages: nothing dangling, nothing lost, a partial answer that can be continued."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from runner.core.turn.round import RoundRequest
from runner.errors import ModelRejected
from runner.models.prompt import Prompt, to_prompt

SIGNED = {"pydantic_ai": {"signature": 'EqQ..é"\\', "provider_name": "anthropic"}}


def user(*parts: dict[str, Any] | str) -> dict[str, Any]:
    return {
        "role": "user",
        "parts": [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts],
    }


def text(content: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **fields}


def call(state: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool-look", "toolCallId": "c1", "state": state, "input": {"a": 1}, **fields}


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
    signed = {"type": "reasoning", "text": "hm", "state": "done", "providerMetadata": SIGNED}
    cut = {**signed, "state": "streaming"}
    response = said(signed, {"type": "reasoning", "text": "unsigned"}, cut, text("Hi"))[0]
    thought = ThinkingPart("hm", signature='EqQ..é"\\', provider_name="anthropic")
    assert list(response.parts) == [thought, TextPart("Hi")]


def test_neighbouring_texts_are_one_and_empty_ones_are_gone() -> None:
    step = {"type": "step-start"}
    assert list(said(step, text("On"), text("ce"), step, text(" up"), text(""))[0].parts) == [TextPart("Once up")]


def test_an_empty_answer_is_left_out() -> None:
    (second,) = prompt(user("a"), {"role": "assistant", "parts": [{"type": "step-start"}]}, user("b")).messages
    assert [part.content for part in second.parts if isinstance(part, UserPromptPart)] == ["a", "b"]


@pytest.mark.parametrize(
    ("part", "content", "outcome"),
    [
        (call("output-available", output={"b": 2}), {"b": 2}, "success"),
        (call("output-available", output=1, preliminary=True), "interrupted", "interrupted"),
        (call("output-error", errorText="boom"), "boom", "failed"),
        (call("output-denied"), "denied", "denied"),
        (call("approval-responded", approval={"id": "p", "approved": False, "reason": "no"}), "no", "denied"),
        (call("approval-responded", approval={"id": "p", "approved": True}), "interrupted", "interrupted"),
        (call("approval-requested", approval={"id": "p"}), "interrupted", "interrupted"),
        (call("input-available"), "interrupted", "interrupted"),
        (call("input-streaming"), "interrupted", "interrupted"),
    ],
)
def test_every_call_has_exactly_one_result_right_after_it(part: dict[str, Any], content: object, outcome: str) -> None:
    """I6."""
    response, request = said(text("Look."), part)
    assert list(response.parts) == [TextPart("Look."), ToolCallPart("look", {"a": 1}, "c1")]
    (result,) = (item for item in request.parts if isinstance(item, ToolReturnPart))
    assert (result.tool_call_id, result.tool_name, result.content, result.outcome) == ("c1", "look", content, outcome)


def test_odd_inputs_and_dynamic_tools() -> None:
    listed = {"type": "dynamic-tool", "toolName": "x", "toolCallId": "c2", "state": "output-error", "input": [1]}
    raw = {"type": "tool-y", "toolCallId": "c3", "state": "output-error", "rawInput": '{"a', "errorText": "cut"}
    provided = call("output-available", output=1, providerExecuted=True)
    calls = [part for part in said(listed, raw, provided)[0].parts if isinstance(part, ToolCallPart)]
    assert [(part.tool_name, part.args) for part in calls] == [("x", "[1]"), ("y", '{"a')]


def test_a_partial_answer_is_one_text_without_white_space_at_its_end() -> None:
    parts = [text("The sea "), {"type": "reasoning", "text": "hm", "providerMetadata": SIGNED}, text("is \n")]
    made = prompt(user("?"), {"role": "assistant", "parts": parts})
    assert made.held == " \n"
    assert [type(part) for part in made.messages[-1].parts] == [ThinkingPart, TextPart]
    assert made.messages[-1].parts[-1] == TextPart("The sea is")


@pytest.mark.parametrize("parts", [[text(" ")], [{"type": "reasoning", "text": "hm", "providerMetadata": SIGNED}], []])
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
