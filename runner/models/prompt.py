"""The provider view of a request as the messages of pydantic-ai.

Rules of this file: a pure mapping. What a model gets to see is the view's decision; here is decided what this library
can carry. A trailing answer is a partial one to continue: what was said after its last result goes out as one text,
ending without white space. Thoughts and calls that a provider ran itself go back only under that provider's name:
without it, adapters would turn them into visible text or refuse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

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
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from runner.core.transcript.call_ids import IdRules
from runner.core.transcript.provider_view import (
    AssistantMessage,
    Content,
    File,
    Outcome,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    provider_view,
)
from runner.core.transcript.tool_state import is_call, parts_of
from runner.core.turn.round import Message, RoundRequest
from runner.errors import ModelRejected
from runner.models.seams import whole_value

METADATA_KEY = "pydantic_ai"
"""The key of `providerMetadata` that carries what a provider wants back."""

_LINKS: dict[str, type[ImageUrl | AudioUrl | VideoUrl]] = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}

_OUTCOMES: dict[Outcome, Literal["success", "failed", "denied", "interrupted"]] = {
    "ok": "success",
    "error": "failed",
    "denied": "denied",
    "interrupted": "interrupted",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent, and `held`: the white space taken off the end of the partial answer."""

    messages: list[ModelMessage]
    held: str = ""


def to_prompt(request: RoundRequest) -> Prompt:
    """The provider messages of `request`. ModelRejected for a file that cannot be sent."""
    messages: list[Message] = whole_value(request.messages)
    instructions: list[str] = [whole_value(request.instructions or "")]
    history: list[ModelMessage] = []
    for message in provider_view(messages, id_rules=IdRules()):
        match message:
            case SystemMessage(content):
                instructions += [text.text for text in content]
            case UserMessage(content):
                _add_request(history, [_user_part(content)])
            case AssistantMessage(content):
                _add_response(history, _response_parts(content))
            case ToolMessage(content):
                _add_request(history, [_return_part(result) for result in content])
    _make_continuable(history)
    told = "\n\n".join(text for text in instructions if text) or None
    return Prompt(_instructed(history, told), _white_end(messages))


def _instructed(history: list[ModelMessage], instructions: str | None) -> list[ModelMessage]:
    """Instructions on every request, since only those of the last one are sent."""
    if not any(isinstance(message, ModelRequest) for message in history):
        history = [ModelRequest(parts=[]), *history]
    return [
        replace(entry, instructions=instructions) if isinstance(entry, ModelRequest) else entry for entry in history
    ]


def _add_request(history: list[ModelMessage], parts: Sequence[ModelRequestPart]) -> None:
    if history and isinstance(last := history[-1], ModelRequest):
        history[-1] = replace(last, parts=[*last.parts, *parts])
    else:
        history.append(ModelRequest(parts=list(parts)))


def _add_response(history: list[ModelMessage], parts: Sequence[ModelResponsePart]) -> None:
    if parts:
        history.append(ModelResponse(parts=parts))


def _user_part(content: Sequence[Text | File]) -> UserPromptPart:
    told = [item.text if isinstance(item, Text) else _file(item) for item in content]
    return UserPromptPart(told[0] if len(told) == 1 and isinstance(told[0], str) else told)


def _file(file: File) -> UserContent:
    """A file by value or by link; links are restricted to the web, because some adapters fetch them."""
    if file.url.startswith("data:"):
        return _inline(file.url)
    if not file.url.startswith(("https://", "http://")):
        scheme = file.url.partition(":")[0][:20]
        raise ModelRejected(f"a file link of scheme {scheme!r} cannot be sent; use https: or a base64 data: URL")
    kind = file.media_type.partition("/")[0]
    link: type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl] = _LINKS.get(kind, DocumentUrl)
    return link(url=file.url, media_type=file.media_type or None)


def _inline(url: str) -> BinaryContent:
    try:
        return BinaryContent.from_data_uri(url)
    except ValueError as error:
        raise ModelRejected(f"a data: URL of a file cannot be read ({error}); send it base64-encoded") from error


def _response_parts(content: Sequence[Content]) -> list[ModelResponsePart]:
    """What can be carried of an answer. What cannot may have been all that a thought led to."""
    parts = _joined(
        part for item, after in zip(content, [*content[1:], None], strict=True) for part in _part(item, after)
    )
    while parts and isinstance(parts[-1], ThinkingPart):
        parts.pop()
    return parts


def _part(item: Content, after: Content | None) -> Iterator[ModelResponsePart]:
    mark = _mark(item.metadata)
    signature = mark.pop("signature", None)  # only thoughts are signed
    match item:
        case Text(text):
            yield TextPart(text, **mark)
        case Reasoning(text) if mark:
            yield ThinkingPart(text, signature=signature, **mark)
        case File(url) if url.startswith("data:"):
            yield FilePart(_inline(url), **mark)
        case ToolCall(provider_executed=False):
            yield ToolCallPart(item.tool_name, dict(item.input), item.call_id, **mark)
        case ToolCall() if isinstance(after, ToolResult):
            yield from _native_pair(item, after)
        case _:
            pass  # links in an answer have no counterpart; a native result went out with its call


def _native_pair(call: ToolCall, result: ToolResult) -> Iterator[ModelResponsePart]:
    """A call that the provider ran, with its result: both under one provider's name, or neither."""
    asked, told = _mark(call.metadata), _mark(result.metadata)
    if provider := asked.get("provider_name") or told.get("provider_name"):
        yield NativeToolCallPart(
            call.tool_name,
            dict(call.input),
            call.call_id,
            id=asked.get("id"),
            provider_name=provider,
            provider_details=asked.get("provider_details"),
        )
        yield NativeToolReturnPart(
            result.tool_name,
            result.value,
            result.call_id,
            outcome=_OUTCOMES[result.outcome],
            provider_name=provider,
            provider_details=told.get("provider_details"),
        )


def _mark(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the provider wants back with a part of its own; empty when no provider is named."""
    kept = (metadata or {}).get(METADATA_KEY)
    if not isinstance(kept, dict) or not kept.get("provider_name"):
        return {}
    return {key: kept[key] for key in ("id", "signature", "provider_name", "provider_details") if kept.get(key)}


def _return_part(result: ToolResult) -> ToolReturnPart[Any]:
    return ToolReturnPart(result.tool_name, result.value, result.call_id, outcome=_OUTCOMES[result.outcome])


def _joined(parts: Iterable[ModelResponsePart]) -> list[ModelResponsePart]:
    """Neighbouring texts as one: a continued text is one text, and adapters put blank lines between two."""
    joined: list[ModelResponsePart] = []
    for part in parts:
        if isinstance(part, TextPart) and joined and isinstance(last := joined[-1], TextPart):
            joined[-1] = TextPart(last.content + part.content)
        else:
            joined.append(part)
    return joined


def _make_continuable(history: list[ModelMessage]) -> None:
    """Ends a trailing answer with one text, or with the last native result; an answer with neither is asked anew."""
    if not history or not isinstance(last := history[-1], ModelResponse):
        return
    results = [index for index, part in enumerate(last.parts) if isinstance(part, NativeToolReturnPart)]
    start = results[-1] + 1 if results else 0
    before, after = last.parts[:start], last.parts[start:]
    text = "".join(part.content for part in after if isinstance(part, TextPart)).rstrip()
    others = [part for part in after if not isinstance(part, TextPart)]
    history.pop()
    _add_response(history, [*before, *others, TextPart(text)] if text else before)


def _white_end(messages: Sequence[Message]) -> str:
    """The white space that ends the answer so far. Taken from the messages, because the view leaves out a text that is
    nothing else, and a continuation would repeat it."""
    text = ""
    for part in parts_of(messages[-1]) if messages and messages[-1].get("role") == "assistant" else ():
        match part:
            case {"type": "text", "text": str(more)}:
                text += more
            case _ if is_call(part) or part.get("type") == "steering-message":
                text = ""
            case _:
                pass
    return text[len(text.rstrip()) :]
