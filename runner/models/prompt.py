"""UI messages as the messages of a provider request.

Rules of this file: a pure mapping. No call goes out without exactly one result right after it; two answers in a row
become one, since providers refuse them. A trailing answer is a partial one to continue: it goes out as one text, ending
without white space. Thoughts go back only to the provider that signed them; a cut or unsigned thought is left out,
because adapters would turn it into visible text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from runner.core.turn.round import Message, RoundRequest
from runner.errors import ModelRejected
from runner.models.seams import whole_value

METADATA_KEY = "pydantic_ai"
"""The key of `providerMetadata` that carries what a provider wants back."""

_LINKS: dict[str, type[ImageUrl | AudioUrl | VideoUrl]] = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent, and `held`: the white space taken off the end of the partial answer."""

    messages: list[ModelMessage]
    held: str = ""


def to_prompt(request: RoundRequest) -> Prompt:
    """The provider messages of `request`. ModelRejected for a file that cannot be sent."""
    messages: list[Message] = whole_value(request.messages)
    history: list[ModelMessage] = []
    for message in messages:
        match message.get("role"):
            case "user":
                _add_request(history, _user_parts(message))
            case "assistant":
                _add_answer(history, message)
            case _:
                pass
    held = _ready_to_continue(history)
    return Prompt(_instructed(history, _instructions(whole_value(request.instructions), messages)), held)


def _instructions(own: str | None, messages: Sequence[Message]) -> str | None:
    told = [own or ""] + ["".join(_texts(message)) for message in messages if message.get("role") == "system"]
    return "\n\n".join(text for text in told if text) or None


def _instructed(history: list[ModelMessage], instructions: str | None) -> list[ModelMessage]:
    """Instructions on every request, since only those of the last one are sent."""
    if not any(isinstance(message, ModelRequest) for message in history):
        history = [ModelRequest(parts=[]), *history]
    return [
        replace(entry, instructions=instructions) if isinstance(entry, ModelRequest) else entry for entry in history
    ]


def _add_request(history: list[ModelMessage], parts: Sequence[ModelRequestPart]) -> None:
    if not parts:
        return
    if history and isinstance(last := history[-1], ModelRequest):
        history[-1] = replace(last, parts=[*last.parts, *parts])
    else:
        history.append(ModelRequest(parts=list(parts)))


def _add_response(history: list[ModelMessage], parts: Sequence[ModelResponsePart]) -> None:
    if not parts:
        return
    if history and isinstance(last := history[-1], ModelResponse):
        history[-1] = replace(last, parts=_joined([*last.parts, *parts]))
    else:
        history.append(ModelResponse(parts=list(parts)))


def _texts(message: Message) -> Iterator[str]:
    return (part["text"] for part in message.get("parts", ()) if part.get("type") == "text" and part.get("text"))


def _user_parts(message: Message) -> list[ModelRequestPart]:
    content: list[UserContent] = []
    for part in message.get("parts", ()):
        match part:
            case {"type": "text", "text": str(text)} if text:
                content.append(text)
            case {"type": "file", "url": str(url)}:
                content.append(_file(url, str(part.get("mediaType") or "")))
            case _:
                pass
    return [UserPromptPart(content[0] if len(content) == 1 and isinstance(content[0], str) else content)] * bool(
        content
    )


def _file(url: str, media_type: str) -> UserContent:
    """A file by value or by link; links are restricted to the web, because some adapters fetch them."""
    if url.startswith("data:"):
        return _inline(url)
    if not url.startswith(("https://", "http://")):
        scheme = url.partition(":")[0][:20]
        raise ModelRejected(f"a file link of scheme {scheme!r} cannot be sent; use https: or a base64 data: URL")
    link: type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl] = _LINKS.get(media_type.partition("/")[0], DocumentUrl)
    return link(url=url, media_type=media_type or None)


def _inline(url: str) -> BinaryContent:
    try:
        return BinaryContent.from_data_uri(url)
    except ValueError as error:
        raise ModelRejected(f"a data: URL of a file cannot be read ({error}); send it base64-encoded") from error


def _add_answer(history: list[ModelMessage], message: Message) -> None:
    """An assistant message: per step one response, then one request with the results of its calls."""
    for step in _steps(message.get("parts", ())):
        _add_response(history, _joined([answer for part in step for answer in _answer_part(part)]))
        _add_request(history, [result for part in step for result in _result_part(part)])


def _steps(parts: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    step: list[Mapping[str, Any]] = []
    for part in parts:
        if part.get("type") == "step-start":
            yield step
            step = []
        else:
            step.append(part)
    yield step


def _answer_part(part: Mapping[str, Any]) -> Iterator[ModelResponsePart]:
    wanted = _wanted_back(part)
    match part:
        case {"type": "text", "text": str(text)} if text:
            yield TextPart(text, **{key: value for key, value in wanted.items() if key != "signature"})
        case {"type": "reasoning"} if wanted and part.get("state") != "streaming":
            yield ThinkingPart(str(part.get("text") or ""), **wanted)
        case {"type": "file", "url": str(url)} if url.startswith("data:"):
            yield FilePart(_inline(url))
        case {"toolCallId": str(call_id)} if not part.get("providerExecuted"):
            yield ToolCallPart(_tool_name(part), _arguments(part), call_id)
        case _:
            pass


def _wanted_back(part: Mapping[str, Any]) -> dict[str, Any]:
    """What the provider wants back with a part of its own; empty when no provider is named."""
    kept = (part.get("providerMetadata") or {}).get(METADATA_KEY)
    if not isinstance(kept, dict) or not kept.get("provider_name"):
        return {}
    return {key: kept[key] for key in ("id", "signature", "provider_name", "provider_details") if kept.get(key)}


def _tool_name(part: Mapping[str, Any]) -> str:
    return str(part.get("toolName") or str(part["type"]).removeprefix("tool-"))


def _arguments(part: Mapping[str, Any]) -> dict[str, Any] | str:
    given = part.get("input", part.get("rawInput", {}))
    return given if isinstance(given, dict | str) else json.dumps(given)


def _result_part(part: Mapping[str, Any]) -> Iterator[ToolReturnPart[Any]]:
    if "toolCallId" not in part or part.get("providerExecuted"):
        return
    name, call_id, approval = _tool_name(part), str(part["toolCallId"]), part.get("approval") or {}
    match part.get("state"):
        case "output-available" if not part.get("preliminary"):
            yield ToolReturnPart(name, part.get("output"), call_id)
        case "output-error":
            yield ToolReturnPart(name, str(part.get("errorText") or "failed"), call_id, outcome="failed")
        case "output-denied" | "approval-responded" if not approval.get("approved"):
            yield ToolReturnPart(name, str(approval.get("reason") or "denied"), call_id, outcome="denied")
        case _:
            yield ToolReturnPart(name, "interrupted", call_id, outcome="interrupted")


def _joined(parts: Sequence[ModelResponsePart]) -> list[ModelResponsePart]:
    """Neighbouring texts as one: a continued text is one text, and adapters put blank lines between two."""
    joined: list[ModelResponsePart] = []
    for part in parts:
        if isinstance(part, TextPart) and joined and isinstance(last := joined[-1], TextPart):
            joined[-1] = TextPart(last.content + part.content)
        else:
            joined.append(part)
    return joined


def _ready_to_continue(history: list[ModelMessage]) -> str:
    """Makes a trailing answer continuable, in place, and returns the white space taken off its end."""
    if not history or not isinstance(last := history[-1], ModelResponse):
        return ""
    text = "".join(part.content for part in last.parts if isinstance(part, TextPart))
    kept, others = text.rstrip(), [part for part in last.parts if not isinstance(part, TextPart)]
    if kept:
        history[-1] = replace(last, parts=[*others, TextPart(kept)])
    else:
        history.pop()
    return text[len(kept) :]
