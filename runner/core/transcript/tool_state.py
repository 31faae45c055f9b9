"""Tool parts: their states, what may become of them, and what they wait for.

Rules of this file: a call and its result are one part. What is not in TRANSITIONS does not happen: a settled part keeps
its result (I4), and a call that was answered is not asked about again (I15). A preliminary output is not a result yet.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

Part = dict[str, Any]
Message = dict[str, Any]


class State(StrEnum):
    """The states of a tool part."""

    INPUT_STREAMING = "input-streaming"
    INPUT_AVAILABLE = "input-available"
    APPROVAL_REQUESTED = "approval-requested"
    APPROVAL_RESPONDED = "approval-responded"
    OUTPUT_AVAILABLE = "output-available"
    OUTPUT_ERROR = "output-error"
    OUTPUT_DENIED = "output-denied"


class Event(StrEnum):
    """What can happen to a tool part once its chunks are folded."""

    ASK = "ask"
    APPROVE = "approve"
    DENY = "deny"
    CLIENT_OUTPUT = "client-output"
    CLIENT_ERROR = "client-error"
    OUTPUT = "output"
    ERROR = "error"
    INTERRUPT = "interrupt"


def _from(states: Iterable[State], target: State) -> dict[State, State]:
    return dict.fromkeys(states, target)


_ASKABLE = (State.INPUT_AVAILABLE, State.APPROVAL_REQUESTED)
_ANSWERABLE = (*_ASKABLE, State.APPROVAL_RESPONDED)
# The last one stands for a preliminary output; a final one is settled before any table is read.
_OPEN = (State.INPUT_STREAMING, *_ANSWERABLE, State.OUTPUT_AVAILABLE)

TRANSITIONS: Mapping[Event, Mapping[State, State]] = {
    Event.ASK: _from((State.INPUT_STREAMING, *_ASKABLE), State.APPROVAL_REQUESTED),
    Event.APPROVE: _from(_ASKABLE, State.APPROVAL_RESPONDED),
    Event.DENY: _from(_ASKABLE, State.OUTPUT_DENIED),
    Event.CLIENT_OUTPUT: _from(_ANSWERABLE, State.OUTPUT_AVAILABLE),
    Event.CLIENT_ERROR: _from(_ANSWERABLE, State.OUTPUT_ERROR),
    Event.OUTPUT: _from(_OPEN, State.OUTPUT_AVAILABLE),
    Event.ERROR: _from(_OPEN, State.OUTPUT_ERROR),
    Event.INTERRUPT: _from(_OPEN, State.OUTPUT_ERROR),
}
"""Event -> the states it may happen in -> the state after it."""

_STATES = frozenset(State)
_SETTLED = frozenset({State.OUTPUT_AVAILABLE, State.OUTPUT_ERROR, State.OUTPUT_DENIED})
_RESULT_KEYS = frozenset({"output", "result", "errorText", "preliminary"})


def is_tool(part: object) -> bool:
    """Whether it is a part of a tool at all: static (`tool-NAME`) or dynamic."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


def is_call(part: object) -> bool:
    """Whether it is a tool part that can be answered: one with a call id."""
    return isinstance(part, dict) and is_tool(part) and isinstance(part.get("toolCallId"), str)


def tool_name(part: Part) -> str:
    """The name of the tool; empty when the part has none."""
    named = part.get("toolName")
    if isinstance(named, str) and named:
        return named
    kind = str(part.get("type", ""))
    return kind.removeprefix("tool-") if kind.startswith("tool-") else ""


def state_of(part: Part) -> State | None:
    """The state, or None for one that does not exist."""
    state = part.get("state")
    return State(state) if isinstance(state, str) and state in _STATES else None


def is_settled(part: Part) -> bool:
    """Whether the call has its final result: by its state, or because a result is there at all."""
    state = state_of(part)
    if part.get("preliminary") is True:
        return state in (State.OUTPUT_ERROR, State.OUTPUT_DENIED)
    return state in _SETTLED or "output" in part or "result" in part


def is_denied(part: Part) -> bool:
    """Whether a human said no to the call."""
    return state_of(part) is State.OUTPUT_DENIED or approval_of(part).get("approved") is False


def awaits_human(part: object, client_tools: Collection[str]) -> bool:
    """Whether a human owes the move: an approval always, an input only for a tool that a client answers."""
    if not isinstance(part, dict) or not is_tool(part):
        return False
    match state_of(part):
        case State.APPROVAL_REQUESTED:
            return True
        case State.INPUT_AVAILABLE:
            return tool_name(part) in client_tools
        case _:
            return False


def has_settled_result(parts: Iterable[object]) -> bool:
    """Whether any tool part has its final result."""
    return any(isinstance(part, dict) and is_tool(part) and is_settled(part) for part in parts)


def unfinished_calls(messages: Iterable[Message]) -> list[str]:
    """Ids of the calls that have neither a result nor an answer to their approval, in order."""
    return [
        part["toolCallId"]
        for message in messages
        for part in parts_of(message)
        if is_call(part) and not is_settled(part) and state_of(part) is not State.APPROVAL_RESPONDED
    ]


def has_incomplete_batch(messages: Sequence[Message]) -> bool:
    """Whether the last answer holds calls that are answered beside calls that still wait."""
    last = next((message for message in reversed(messages) if message.get("role") == "assistant"), None)
    tools = [part for part in parts_of(last or {}) if is_tool(part)]
    waiting = [part for part in tools if state_of(part) in _ASKABLE and not is_settled(part)]
    answered = any(is_settled(part) or state_of(part) is State.APPROVAL_RESPONDED for part in tools)
    return bool(waiting) and answered


def parts_of(message: Message) -> list[Part]:
    """The parts of a message that are objects; what else was stored there is passed over."""
    parts = message.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def same_call(one: Part, other: Part) -> bool:
    """Whether two parts record the same call: id, tool and input are equal."""
    if one.get("toolCallId") != other.get("toolCallId") or one.get("type") != other.get("type"):
        return False
    names = {part["toolName"] for part in (one, other) if isinstance(part.get("toolName"), str)}
    return len(names) <= 1 and same_json(one.get("input"), other.get("input"))


def same_json(one: Any, other: Any) -> bool:
    """Equality of JSON values: the order of keys does not count, `true` is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def normalized_input(raw: object) -> tuple[dict[str, Any], bool]:
    """The input as an object, and whether that changed it. JSON text of an object is parsed, all else becomes {}."""
    if isinstance(raw, dict):
        return raw, False
    if isinstance(raw, str) and raw.strip().startswith("{"):
        try:
            parsed = json.loads(raw, parse_constant=_refuse_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            return {}, True
        return parsed, True
    return {}, True


def moved(part: Part, event: Event, **fields: Any) -> Part | None:
    """A copy of the part after the event; None when it may not happen, so that the part stays as it is."""
    state = state_of(part)
    target = None if state is None or is_settled(part) else TRANSITIONS[event].get(state)
    if target is None:
        return None
    gone = _RESULT_KEYS | {"rawInput", "inputEncoding"} if target is State.OUTPUT_AVAILABLE else _RESULT_KEYS
    return {**{key: value for key, value in part.items() if key not in gone}, "state": target.value, **fields}


def with_output(part: Part, output: Any, *, preliminary: bool = False, by_client: bool = False) -> Part | None:
    """The part with its output, or None when it may not have one any more."""
    mark = {"preliminary": True} if preliminary else {}
    return moved(part, Event.CLIENT_OUTPUT if by_client else Event.OUTPUT, output=output, **mark)


def with_error(part: Part, text: str, *, by_client: bool = False) -> Part | None:
    """The part with an error as its result, or None when it may not have one any more."""
    return moved(part, Event.CLIENT_ERROR if by_client else Event.ERROR, errorText=text)


def with_approval(part: Part, approved: bool, reason: str | None = None) -> Part | None:
    """The part with the human's answer, or None when nobody waits for one. The approval's other fields stay."""
    approval = {**approval_of(part), "approved": approved}
    approval["id"] = approval.get("id") or part.get("toolCallId")
    if reason is not None:
        approval["reason"] = reason
    return moved(part, Event.APPROVE if approved else Event.DENY, approval=approval)


def answered(
    parts: Sequence[Part], call_id: str, change: Callable[[Part], Part | None]
) -> tuple[int, list[Part]] | None:
    """The parts after `change` of the first part of that call which admits it, and its index; None when none does."""
    for index, part in enumerate(parts):
        if is_call(part) and part["toolCallId"] == call_id and (new := change(part)) is not None:
            return index, [*parts[:index], new, *parts[index + 1 :]]
    return None


def approval_of(part: Part) -> dict[str, Any]:
    """The part's approval; empty when it has none, or one that is no object."""
    approval = part.get("approval")
    return approval if isinstance(approval, dict) else {}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
