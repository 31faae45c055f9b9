"""The union of all parts of a message, as models.

Rules of this file: one class per kind of part; a kind that nobody knows, and one that does not look as it should, is an
UnknownPart, kept whole: what is stored can always be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError

from runner.core.transcript.part_list import Part
from runner.core.transcript.wire_model import ProviderMetadata, Text, WireModel

ToolState = Literal[
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
]


class _WithMetadata(WireModel):
    provider_metadata: ProviderMetadata | None = None


class StepStart(WireModel):
    """Where a step begins."""

    type: Literal["step-start"] = "step-start"


class TextPart(_WithMetadata):
    """Text of the answer."""

    type: Literal["text"] = "text"
    text: Text
    state: Literal["streaming", "done"] | None = None
    citations: list[Any] | None = None


class ReasoningPart(_WithMetadata):
    """What the model thought."""

    type: Literal["reasoning"] = "reasoning"
    text: Text
    id: Text | None = None
    state: Literal["streaming", "done"] | None = None


class Approval(WireModel):
    """The approval of a call: what was asked, and what was answered."""

    id: Text
    approved: bool | None = None
    reason: Text | None = None
    descriptor: Any = None
    input_schema_input: Any = None
    request_reason: Text | None = None
    is_automatic: bool | None = None
    signature: Text | None = None


class _ToolPart(WireModel):
    tool_call_id: Text
    state: ToolState
    title: Text | None = None
    tool_metadata: dict[str, Any] | None = None
    provider_executed: bool | None = None
    call_provider_metadata: ProviderMetadata | None = None
    result_provider_metadata: ProviderMetadata | None = None
    input: Any = None
    raw_input: Any = None
    input_encoding: Literal["json", "text"] | None = None
    approval: Approval | None = None
    output: Any = None
    preliminary: bool | None = None
    error_text: Text | None = None


class ToolPart(_ToolPart):
    """A call of a tool that the agent declares: its type is `tool-NAME`."""

    type: Annotated[Text, Field(pattern="^tool-")]


class DynamicToolPart(_ToolPart):
    """A call of a tool that is known by its name only."""

    type: Literal["dynamic-tool"] = "dynamic-tool"
    tool_name: Text


class SourceUrlPart(_WithMetadata):
    """A web page that the answer stands on."""

    type: Literal["source-url"] = "source-url"
    source_id: Text
    url: Text
    title: Text | None = None


class SourceDocumentPart(_WithMetadata):
    """A document that the answer stands on."""

    type: Literal["source-document"] = "source-document"
    source_id: Text
    media_type: Text
    title: Text
    filename: Text | None = None


class FilePart(_WithMetadata):
    """A file."""

    type: Literal["file", "reasoning-file"] = "file"
    media_type: Text
    url: Text
    filename: Text | None = None
    provider_reference: dict[str, str] | None = None


class CustomPart(_WithMetadata):
    """Content of a kind that a provider defines."""

    type: Literal["custom"] = "custom"
    kind: Text


class SteeringPart(WireModel):
    """What a user said while the run went on."""

    type: Literal["steering-message"] = "steering-message"
    id: Text
    parts: list[Any]


class DataPart(WireModel):
    """A `data-NAME` part: whatever the author sent beside the answer."""

    type: Annotated[Text, Field(pattern="^data-")]
    data: Any
    id: Text | None = None


class UnknownPart(WireModel):
    """A part that this version does not know."""


KnownPart = (
    StepStart | TextPart | ReasoningPart | DynamicToolPart
    | SourceUrlPart | SourceDocumentPart | FilePart | CustomPart | SteeringPart
)  # fmt: skip
AnyPart = KnownPart | ToolPart | DataPart | UnknownPart

_BY_TYPE: Mapping[str, type[KnownPart]] = {
    name: model for model in get_args(KnownPart) for name in get_args(model.model_fields["type"].annotation)
}


def read_part(part: Part) -> AnyPart:
    """The typed view of a part."""
    kind = part.get("type")
    try:
        return _model_for(kind if isinstance(kind, str) else "").model_validate(part, by_alias=True, by_name=False)
    except ValidationError:
        return UnknownPart.model_validate(part, by_alias=True, by_name=False)


def _model_for(kind: str) -> type[AnyPart]:
    if kind.startswith("tool-"):
        return ToolPart
    return DataPart if kind.startswith("data-") else _BY_TYPE.get(kind, UnknownPart)
