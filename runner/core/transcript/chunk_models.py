"""The union of all chunks: every type of the AI SDK UI message stream, version 7, as a model of its own.

Rules of this file: one class per row of the protocol; a type that nobody knows is an UnknownChunk, kept whole. Which
chunks a client takes is for `wire` to say, and `read_chunk` asks it; the classes say what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from runner.core.transcript.chunk import Chunk
from runner.core.transcript.wire import Refusal, Why, refusal_of
from runner.core.transcript.wire_model import ProviderMetadata, Text, WireModel

FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other"]


class _WithMetadata(WireModel):
    provider_metadata: ProviderMetadata | None = None


class Start(WireModel):
    """Opens a message, or names it."""

    type: Literal["start"] = "start"
    message_id: Text | None = None
    message_metadata: Any = None


class StartStep(WireModel):
    """Opens a step."""

    type: Literal["start-step"] = "start-step"


class FinishStep(WireModel):
    """Closes a step."""

    type: Literal["finish-step"] = "finish-step"


class ResetStep(WireModel):
    """Drops the parts of the current step."""

    type: Literal["reset-step"] = "reset-step"


class TextStart(_WithMetadata):
    """Opens a text part."""

    type: Literal["text-start"] = "text-start"
    id: Text


class TextDelta(_WithMetadata):
    """More text of an open part."""

    type: Literal["text-delta"] = "text-delta"
    id: Text
    delta: Text


class TextEnd(_WithMetadata):
    """Closes a text part."""

    type: Literal["text-end"] = "text-end"
    id: Text
    citations: list[Any] | None = None


class ReasoningStart(_WithMetadata):
    """Opens a reasoning part."""

    type: Literal["reasoning-start"] = "reasoning-start"
    id: Text


class ReasoningDelta(_WithMetadata):
    """More of an open reasoning part."""

    type: Literal["reasoning-delta"] = "reasoning-delta"
    id: Text
    delta: Text


class ReasoningEnd(_WithMetadata):
    """Closes a reasoning part."""

    type: Literal["reasoning-end"] = "reasoning-end"
    id: Text


class _OfTool(_WithMetadata):
    tool_call_id: Text
    provider_executed: bool | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None


class ToolInputStart(_OfTool):
    """Opens a tool call, or begins its input anew."""

    type: Literal["tool-input-start"] = "tool-input-start"
    tool_name: Text
    input_encoding: Literal["json", "text"] | None = None
    title: Text | None = None


class ToolInputDelta(WireModel):
    """More text of a call's input."""

    type: Literal["tool-input-delta"] = "tool-input-delta"
    tool_call_id: Text
    input_text_delta: Text


class ToolInputAvailable(_OfTool):
    """The whole, canonical input of a call."""

    type: Literal["tool-input-available"] = "tool-input-available"
    tool_name: Text
    input: Any
    title: Text | None = None


class ToolInputError(_OfTool):
    """The input of a call is none."""

    type: Literal["tool-input-error"] = "tool-input-error"
    tool_name: Text
    input: Any
    error_text: Text
    title: Text | None = None


class ToolApprovalRequest(WireModel):
    """Asks a human to agree to a call."""

    type: Literal["tool-approval-request"] = "tool-approval-request"
    approval_id: Text
    tool_call_id: Text
    approval_descriptor: Any = None
    input_schema_input: Any = None
    reason: Text | None = None
    is_automatic: bool | None = None
    signature: Text | None = None


class ToolApprovalResponse(_WithMetadata):
    """What the human said."""

    type: Literal["tool-approval-response"] = "tool-approval-response"
    approval_id: Text
    approved: bool
    reason: Text | None = None
    provider_executed: bool | None = None


class ToolOutputAvailable(_OfTool):
    """The result of a call, or a first view of it."""

    type: Literal["tool-output-available"] = "tool-output-available"
    output: Any
    preliminary: bool | None = None


class ToolOutputError(_OfTool):
    """A call failed."""

    type: Literal["tool-output-error"] = "tool-output-error"
    error_text: Text


class ToolOutputDenied(WireModel):
    """A human said no to a call."""

    type: Literal["tool-output-denied"] = "tool-output-denied"
    tool_call_id: Text


class SourceUrl(_WithMetadata):
    """A web page that the answer stands on."""

    type: Literal["source-url"] = "source-url"
    source_id: Text
    url: Text
    title: Text | None = None


class SourceDocument(_WithMetadata):
    """A document that the answer stands on."""

    type: Literal["source-document"] = "source-document"
    source_id: Text
    media_type: Text
    title: Text
    filename: Text | None = None


class File(_WithMetadata):
    """A file of the answer."""

    type: Literal["file", "reasoning-file"] = "file"
    url: Text
    media_type: Text


class Custom(_WithMetadata):
    """Content of a kind that a provider defines."""

    type: Literal["custom"] = "custom"
    kind: Text


class SteeringMessage(WireModel):
    """What a user said while the run went on."""

    type: Literal["steering-message"] = "steering-message"
    id: Text
    parts: list[Any]


class MessageMetadata(WireModel):
    """Metadata of the message, laid over what is there."""

    type: Literal["message-metadata"] = "message-metadata"
    message_metadata: Any


class Finish(WireModel):
    """Closes the message."""

    type: Literal["finish"] = "finish"
    finish_reason: FinishReason | None = None
    message_metadata: Any = None


class Abort(WireModel):
    """Closes the message of a run that was cancelled."""

    type: Literal["abort"] = "abort"
    reason: Text | None = None


class Error(WireModel):
    """Closes the message of a run that failed."""

    type: Literal["error"] = "error"
    error_text: Text


class Data(WireModel):
    """A `data-NAME` chunk: whatever the author sends beside the answer."""

    type: Annotated[Text, Field(pattern="^data-")]
    data: Any
    id: Text | None = None
    transient: bool | None = None


class UnknownChunk(WireModel):
    """A chunk of a type that this version does not know."""

    type: Text


KnownChunk = (
    Start | StartStep | FinishStep | ResetStep | TextStart | TextDelta | TextEnd
    | ReasoningStart | ReasoningDelta | ReasoningEnd
    | ToolInputStart | ToolInputDelta | ToolInputAvailable | ToolInputError
    | ToolApprovalRequest | ToolApprovalResponse | ToolOutputAvailable | ToolOutputError | ToolOutputDenied
    | SourceUrl | SourceDocument | File | Custom | SteeringMessage | MessageMetadata | Finish | Abort | Error
)  # fmt: skip
AnyChunk = KnownChunk | Data | UnknownChunk

_BY_TYPE: Mapping[str, type[KnownChunk | Data]] = {
    name: model for model in get_args(KnownChunk) for name in get_args(model.model_fields["type"].annotation)
}


def read_chunk(chunk: Chunk) -> AnyChunk | Refusal:
    """The typed view of a chunk; a refusal for what no client takes, unless only its type is unknown."""
    refusal = refusal_of(chunk)
    if refusal is None:
        return _BY_TYPE.get(chunk["type"], Data).model_validate(chunk, by_alias=True, by_name=False)
    if refusal.why is Why.UNKNOWN_TYPE and isinstance(chunk.get("type"), str):
        return UnknownChunk.model_validate(chunk, by_alias=True, by_name=False)
    return refusal
