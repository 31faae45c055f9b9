"""The provider view: what a model gets to see of a history.

Rules of this file: system first, then user and assistant in turn; what a client-side tool said follows in one tool
message right after the answer that called it: exactly one result per call, in call order (I6). An answer that says
nothing is left out: white space, or a thought that leads to nothing. A thought goes back whole with its provider's
mark, or not at all. What a provider ran itself stays inside the answer. A call that nobody finished is told as such, so
the view is sound for any history; repairing it first gives the author a say. Values are those of the messages: do not
change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from runner.core.transcript.call_ids import CallIds, IdRules
from runner.core.transcript.repair import INPUT_CUT, INTERRUPTED
from runner.core.transcript.tool_state import (
    Message,
    Part,
    State,
    is_call,
    is_denied,
    is_settled,
    normalized_input,
    parts_of,
    state_of,
    tool_name,
)

Outcome = Literal["ok", "error", "denied", "interrupted"]

DENIED = "The user did not allow this call. It was not run."
FAILED = "The tool failed and gave no reason."
WAITING = "This call still waits for an answer of the user. It was not run."
NOT_YET_RUN = "This call was approved and has not been run."


@dataclass(frozen=True, slots=True)
class Text:
    """Words. `metadata` is the provider's mark on a part, as the stream brought it."""

    type: ClassVar[str] = "text"
    text: str
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A whole thought, byte for byte, with the mark that its provider wants back."""

    type: ClassVar[str] = "reasoning"
    text: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """A file by URL (`data:` included). Which schemes may be sent is the adapter's decision."""

    type: ClassVar[str] = "file"
    url: str
    media_type: str
    filename: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call. `call_id` is safe for the provider, `source_id` the one in the transcript; the input is an object."""

    type: ClassVar[str] = "tool-call"
    call_id: str
    source_id: str
    tool_name: str
    input: Mapping[str, Any]
    provider_executed: bool = False
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came to. `value` is the output when `outcome` is ok, else a sentence for the model."""

    type: ClassVar[str] = "tool-result"
    call_id: str
    tool_name: str
    outcome: Outcome
    value: Any
    provider_executed: bool = False
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """All system messages of the history as one; the first message of the view if there is any."""

    role: ClassVar[str] = "system"
    content: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user said since the last answer."""

    role: ClassVar[str] = "user"
    content: tuple[Text | File, ...]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """An answer, in the order in which it was given. The last one may be a partial answer."""

    role: ClassVar[str] = "assistant"
    content: tuple[Text | Reasoning | File | ToolCall | ToolResult, ...]


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The results of the calls of the answer before it, one each, in call order."""

    role: ClassVar[str] = "tool"
    content: tuple[ToolResult, ...]


ProviderMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage
Content = Text | Reasoning | File | ToolCall | ToolResult


def provider_view(messages: Sequence[Message], *, id_rules: IdRules | None = None) -> list[ProviderMessage]:
    """The messages for a provider. Without `id_rules` call ids stay as they are, unless one is used again."""
    ids = CallIds(id_rules)
    system: list[Text] = []
    said: list[ProviderMessage] = []
    for message in messages:
        match message.get("role"):
            case "system":
                system += [Text("".join(_words(parts_of(message))))]
            case "user":
                said.append(UserMessage(tuple(_spoken(parts_of(message)))))
            case "assistant":
                said += _answer(parts_of(message), ids)
            case _:
                pass  # no such role is known; what it holds has no place in a conversation
    told = tuple(text for text in system if text.text.strip())
    return [*([SystemMessage(told)] if told else []), *_alternating(said)]


def as_json(view: Iterable[ProviderMessage]) -> list[dict[str, Any]]:
    """The view as JSON values, absent fields left out."""
    return [{"role": message.role, "content": [_content_json(item) for item in message.content]} for message in view]


def _content_json(item: Content) -> dict[str, Any]:
    told = {field.name: getattr(item, field.name) for field in fields(item)}
    absent = {name for name, value in told.items() if value is None and name != "value"}
    return {"type": item.type, **{name: value for name, value in told.items() if name not in absent}}


def _answer(parts: Sequence[Part], ids: CallIds) -> Iterator[ProviderMessage]:
    """Per step one answer and the results of its calls; words of the user that came in between stand between."""
    answer: list[Content] = []
    results: list[ToolResult] = []
    for part in [*parts, {"type": "step-start"}]:
        kind = part.get("type")
        if kind not in ("step-start", "steering-message"):
            _take(part, ids, answer, results)
            continue
        yield AssistantMessage(tuple(answer))
        yield ToolMessage(tuple(results))
        answer, results = [], []
        if kind == "steering-message":
            yield UserMessage(tuple(_spoken(parts_of(part))))


def _take(part: Part, ids: CallIds, answer: list[Content], results: list[ToolResult]) -> None:
    match part:
        case {"type": "text", "text": str(text)}:
            answer.append(Text(text, _metadata(part, "providerMetadata")))
        case {"type": "reasoning", "text": str(text)}:
            mark = _metadata(part, "providerMetadata")
            if mark and part.get("state") != "streaming":
                answer.append(Reasoning(text, mark))
        case {"type": "file"}:
            answer += _file(part)
        case _ if is_call(part) and tool_name(part):
            _take_call(part, ids, answer, results)
        case _:
            pass  # sources, data and unknown parts are for clients


def _take_call(part: Part, ids: CallIds, answer: list[Content], results: list[ToolResult]) -> None:
    by_provider = part.get("providerExecuted") is True
    if by_provider and not is_settled(part):
        return  # the provider alone can say how its own call ended
    named, tool = ids.name(part["toolCallId"]), tool_name(part)
    given = normalized_input(part.get("input"))[0]
    outcome, value = _outcome(part)
    call_mark, result_mark = _metadata(part, "callProviderMetadata"), _metadata(part, "resultProviderMetadata")
    answer.append(ToolCall(named, part["toolCallId"], tool, given, by_provider, call_mark))
    result = ToolResult(named, tool, outcome, value, by_provider, result_mark)
    (answer if by_provider else results).append(result)


def _outcome(part: Part) -> tuple[Outcome, Any]:
    """What the model is told about a call: the first row that fits."""
    match state_of(part):
        case State.OUTPUT_ERROR:
            return "error", _sentence(part.get("errorText")) or FAILED
        case State.OUTPUT_DENIED:
            return "denied", _denial(part)
        case _ if is_settled(part):
            return "ok", part.get("output", part.get("result"))
        case _ if is_denied(part):
            return "denied", _denial(part)
        case State.APPROVAL_RESPONDED:
            return "interrupted", NOT_YET_RUN
        case State.APPROVAL_REQUESTED:
            return "interrupted", WAITING
        case State.INPUT_STREAMING:
            return "interrupted", INPUT_CUT
        case _:
            return "interrupted", INTERRUPTED


def _denial(part: Part) -> str:
    approval = part.get("approval")
    reason = _sentence(approval.get("reason")) if isinstance(approval, dict) else ""
    return f"{DENIED} Reason: {reason}" if reason else DENIED


def _sentence(text: object) -> str:
    return text if isinstance(text, str) and text.strip() else ""


def _words(parts: Iterable[Part]) -> Iterator[str]:
    return (part["text"] for part in parts if part.get("type") == "text" and isinstance(part.get("text"), str))


def _spoken(parts: Iterable[Part]) -> Iterator[Text | File]:
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)} if text.strip():
                yield Text(text, _metadata(part, "providerMetadata"))
            case {"type": "file"}:
                yield from _file(part)
            case _:
                pass


def _file(part: Part) -> Iterator[File]:
    url, filename = part.get("url"), part.get("filename")
    if isinstance(url, str):
        named = filename if isinstance(filename, str) else None
        yield File(url, str(part.get("mediaType") or ""), named, _metadata(part, "providerMetadata"))


def _metadata(part: Part, key: str) -> Mapping[str, Any] | None:
    found = part.get(key)
    return found if isinstance(found, dict) and found else None


def _alternating(said: Iterable[ProviderMessage]) -> list[ProviderMessage]:
    """Neighbours of one role as one, empty messages out. Joined before and after: whether a thought leads to something
    is known once its answer is whole, and what is left out then makes new neighbours."""
    whole = _joined(message for message in said if message.content)
    return _joined(told for message in whole if (told := _telling(message)).content)


def _joined(said: Iterable[ProviderMessage]) -> list[ProviderMessage]:
    joined: list[ProviderMessage] = []
    for message in said:
        match joined[-1:], message:
            case [UserMessage(before)], UserMessage(after):
                joined[-1] = UserMessage((*before, *after))
            case [AssistantMessage(before)], AssistantMessage(after):
                joined[-1] = AssistantMessage((*before, *after))
            case _:
                joined.append(message)
    return joined


def _telling(message: ProviderMessage) -> ProviderMessage:
    """An answer without what says nothing: neighbouring texts are one, white space and trailing thoughts are out."""
    if not isinstance(message, AssistantMessage):
        return message
    content: list[Content] = []
    for item in message.content:
        match content[-1:], item:
            case [Text(before, None)], Text(after, None):
                content[-1] = Text(before + after)
            case _:
                content.append(item)
    told = [item for item in content if not isinstance(item, Text) or item.text.strip()]
    while told and isinstance(told[-1], Reasoning):
        told.pop()
    return AssistantMessage(tuple(told))
