"""Tool chunks: what each does to the part of its call, and what clients are sent for it.

Rules of this file: a chunk has one target, the part that a stock client would change, and only that part decides. A
settled part keeps its result (I4). Input never moves a call back that waits for a human or was answered, and an
answered approval is never asked again (I15). Input that comes after its approval request fills what is missing or
provisional. Each function answers with what clients are sent: None when they could not take the chunk, because it
speaks of a call that is not there; nothing when the chunk is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runner.core.transcript.chunk import Chunk
from runner.core.transcript.part_list import Part, PartList
from runner.core.transcript.stored_message import is_provisional, mark_provisional
from runner.core.transcript.tool_input import Draft, Drafts

Forward = tuple[Chunk, ...] | None
IGNORED: Forward = ()
UNFITTING: Forward = None

REQUESTED, RESPONDED = "approval-requested", "approval-responded"

_CLEARED = ("input", "output", "errorText", "rawInput", "preliminary", "inputEncoding")
_OF_THE_CALL = ("title", "toolMetadata", "providerExecuted")
# Of the approval of a part -> of the chunk that asks for it.
_REQUEST_FIELDS = {
    "descriptor": "approvalDescriptor",
    "inputSchemaInput": "inputSchemaInput",
    "requestReason": "reason",
    "isAutomatic": "isAutomatic",
    "signature": "signature",
}


def is_settled(part: Part) -> bool:
    """Whether the call has its final result."""
    state = part.get("state")
    return state in ("output-error", "output-denied") or (
        state == "output-available" and part.get("preliminary") is not True
    )


def takes_no_input(part: Part) -> bool:
    """Whether streamed input would move the call back."""
    return part.get("state") in (REQUESTED, RESPONDED) or is_settled(part)


class ToolCalls:
    """The tool parts of one message, as chunks change them."""

    def __init__(self, parts: PartList, drafts: Drafts) -> None:
        self._parts = parts
        self.drafts = drafts

    def input_start(self, chunk: Chunk) -> Forward:
        """Opens a call, or begins its input anew."""
        call_id, dynamic = chunk["toolCallId"], chunk.get("dynamic") is True
        index = self._parts.of_kind(call_id, dynamic)
        if index is not None and takes_no_input(self._parts.items[index]):
            return IGNORED
        self.drafts.begin(call_id, chunk)
        part = self._part(index, call_id, dynamic)
        encoding = {"inputEncoding": chunk["inputEncoding"]} if "inputEncoding" in chunk else {}
        _advance(part, "input-streaming", chunk["toolName"], encoding)
        _carry(part, chunk, "callProviderMetadata")
        mark_provisional(part, False)
        return (chunk,)

    def input_delta(self, chunk: Chunk) -> Forward:
        """Adds text to the input of a call."""
        call_id = chunk["toolCallId"]
        draft = self.drafts.get(call_id)
        if draft is not None and draft.at is not None and draft.at >= self._parts.step_begin:
            draft.is_stale = draft.shows_raw = True
        else:
            index = self._parts.in_step(call_id) if draft is None else self._parts.of_kind(call_id, draft.dynamic)
            if index is not None and takes_no_input(self._parts.items[index]):
                return IGNORED
            if draft is None:
                return UNFITTING
            self._stream_into(index, call_id, draft)
        draft.pieces.append(chunk["inputTextDelta"])
        return (chunk,)

    def _stream_into(self, index: int | None, call_id: str, draft: Draft) -> None:
        """Makes the part at `index`, or a new one, show the draft."""
        if draft.at is not None:
            self.drafts.settle(draft.at, self._parts.items)
        is_new = index is None
        part = self._part(index, call_id, draft.dynamic)
        encoding = {"inputEncoding": draft.facts["inputEncoding"]} if "inputEncoding" in draft.facts else {}
        _advance(part, "input-streaming", draft.tool_name, encoding)
        _carry(part, {key: draft.facts[key] for key in _OF_THE_CALL if key in draft.facts}, "callProviderMetadata")
        at = len(self._parts) - 1 if index is None else index
        # As in the AI SDK: a dynamic part that a delta makes shows the raw text from the next delta on.
        self.drafts.show(draft, at, shows_raw=not (is_new and draft.dynamic))

    def input_available(self, chunk: Chunk) -> Forward:
        """The canonical input of a call."""
        call_id, dynamic = chunk["toolCallId"], chunk.get("dynamic") is True
        index = self._parts.of_kind(call_id, dynamic)
        if index is not None and takes_no_input(self._parts.items[index]):
            return self._late_input(index, chunk)
        part = self._part(index, call_id, dynamic)
        _advance(part, "input-available", chunk["toolName"], {"input": chunk["input"]})
        _carry(part, chunk, "callProviderMetadata")
        mark_provisional(part, False)
        return (chunk,)

    def _late_input(self, index: int, chunk: Chunk) -> Forward:
        part = self._settled(index)
        state = part.get("state")
        if state not in (REQUESTED, RESPONDED):
            return IGNORED
        is_filled = "input" not in part or is_provisional(part)
        if is_filled:
            part["input"] = chunk["input"]
            mark_provisional(part, False)
        if state == RESPONDED:
            return IGNORED
        for key in _CLEARED[1:]:
            part.pop(key, None)  # as it goes at the clients, by the chunk that they are sent
        shown = {**chunk, "input": part["input"], "toolName": _tool_name(part)}
        if is_filled:
            _carry(part, chunk, "callProviderMetadata")
            mark_provisional(part, False)
        else:
            shown = {key: value for key, value in shown.items() if key not in (*_OF_THE_CALL, "providerMetadata")}
        request = _request_of(part)
        return IGNORED if request is None else (shown, request)

    def input_error(self, chunk: Chunk) -> Forward:
        """The input of a call turned out to be none."""
        call_id = chunk["toolCallId"]
        index = self._parts.in_step(call_id)
        if index is not None and is_settled(self._parts.items[index]):
            return IGNORED
        part = self._part(index, call_id, chunk.get("dynamic") is True)
        _advance(part, "output-error", chunk["toolName"], {"input": chunk["input"], "errorText": chunk["errorText"]})
        _carry(part, {key: value for key, value in chunk.items() if key != "title"}, "resultProviderMetadata")
        mark_provisional(part, False)
        return (chunk,)

    def approval_request(self, chunk: Chunk) -> Forward:
        """A human must agree before the call runs."""
        index = self._parts.anywhere(chunk["toolCallId"])
        if index is None:
            return UNFITTING
        if is_settled(self._parts.items[index]) or self._parts.items[index].get("state") == RESPONDED:
            return IGNORED
        part = self._settled(index)
        part["state"] = REQUESTED
        part["approval"] = _approval_of(chunk)
        return (chunk,)

    def approval_response(self, chunk: Chunk) -> Forward:
        """What the human said; the last answer counts."""
        index = self._parts.of_approval(chunk["approvalId"])
        if index is None:
            return UNFITTING
        if is_settled(self._parts.items[index]):
            return IGNORED
        part = self._settled(index)
        part["state"] = RESPONDED
        part["approval"] = {**part["approval"], "approved": chunk["approved"]}
        if "reason" in chunk:
            part["approval"]["reason"] = chunk["reason"]
        _carry(part, {key: chunk[key] for key in _ANSWER_FIELDS if key in chunk}, "callProviderMetadata")
        return (chunk,)

    def output_available(self, chunk: Chunk) -> Forward:
        """A result, or with `preliminary` a first view of it."""
        result: dict[str, Any] = {key: chunk[key] for key in ("output", "preliminary") if key in chunk}
        return self._result(chunk, "output-available", result)

    def output_error(self, chunk: Chunk) -> Forward:
        """The call failed."""
        return self._result(chunk, "output-error", {"errorText": chunk["errorText"]})

    def _result(self, chunk: Chunk, state: str, result: Mapping[str, Any]) -> Forward:
        index = self._parts.anywhere(chunk["toolCallId"])
        if index is None:
            return UNFITTING
        if is_settled(self._parts.items[index]):
            return IGNORED
        part = self._settled(index)
        keeps_raw = state == "output-error" and part["type"] != "dynamic-tool"
        kept: dict[str, Any] = {key: part[key] for key in ("input", "rawInput")[: 1 + keeps_raw] if key in part}
        _advance(part, state, _tool_name(part), {**kept, **result})
        _carry(part, {key: value for key, value in chunk.items() if key != "title"}, "resultProviderMetadata")
        return (chunk,)

    def output_denied(self, chunk: Chunk) -> Forward:
        """A human said no."""
        index = self._parts.anywhere(chunk["toolCallId"])
        if index is None:
            return UNFITTING
        if is_settled(self._parts.items[index]):
            return IGNORED
        self._settled(index)["state"] = "output-denied"
        return (chunk,)

    def _settled(self, index: int) -> Part:
        return self.drafts.settle(index, self._parts.items)

    def _part(self, index: int | None, call_id: str, dynamic: bool) -> Part:
        """The part at `index`, whose input is about to be replaced, or a new one without a state."""
        if index is not None:
            return self.drafts.settle(index, self._parts.items, is_read=False)
        part: Part = {"type": "dynamic-tool" if dynamic else "tool-", "toolCallId": call_id}
        self._parts.append(part)
        return part


_ANSWER_FIELDS = ("providerExecuted", "providerMetadata")


def _advance(part: Part, state: str, name: str, values: Mapping[str, Any]) -> None:
    """A new state with these values; those of the old one go."""
    for key in _CLEARED:
        part.pop(key, None)
    if part["type"] == "dynamic-tool":
        part["toolName"] = name
    else:
        part["type"] = f"tool-{name}"
    part["state"] = state
    part.update(values)


def _carry(part: Part, chunk: Mapping[str, Any], metadata_key: str) -> None:
    """Takes over what the chunk says of the call itself; what it leaves out stays."""
    for key in _OF_THE_CALL:
        if key in chunk:
            part[key] = chunk[key]
    if "providerMetadata" in chunk:
        part[metadata_key] = chunk["providerMetadata"]


def _approval_of(chunk: Chunk) -> dict[str, Any]:
    approval = {"id": chunk["approvalId"]}
    for ours, theirs in _REQUEST_FIELDS.items():
        if theirs in chunk and (chunk[theirs] is not None or ours == "inputSchemaInput"):
            approval[ours] = chunk[theirs]
    if approval.get("isAutomatic") is not True:
        approval.pop("isAutomatic", None)
    return approval


def _request_of(part: Part) -> Chunk | None:
    """The chunk that asks for the part's approval; None when its approval has no id."""
    approval = part.get("approval")
    if not isinstance(approval, dict) or not isinstance(approval.get("id"), str):
        return None
    request = {"type": "tool-approval-request", "approvalId": approval["id"], "toolCallId": part["toolCallId"]}
    return request | {theirs: approval[ours] for ours, theirs in _REQUEST_FIELDS.items() if ours in approval}


def _tool_name(part: Part) -> str:
    return str(part.get("toolName", "")) if part["type"] == "dynamic-tool" else part["type"].removeprefix("tool-")


TOOL_CHUNKS: Mapping[str, Callable[[ToolCalls, Chunk], Forward]] = {
    "tool-input-start": ToolCalls.input_start,
    "tool-input-delta": ToolCalls.input_delta,
    "tool-input-available": ToolCalls.input_available,
    "tool-input-error": ToolCalls.input_error,
    "tool-approval-request": ToolCalls.approval_request,
    "tool-approval-response": ToolCalls.approval_response,
    "tool-output-available": ToolCalls.output_available,
    "tool-output-error": ToolCalls.output_error,
    "tool-output-denied": ToolCalls.output_denied,
}
