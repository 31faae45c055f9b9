"""Repair: every call of a history that nobody will finish any more gets its result, at its place.

Rules of this file: the whole history is looked at, not its end. Settled calls keep their result (I4), calls that a
human still owes an answer to are left alone (I15). A result belongs to the part that asked for it, so a reused call id
never meets another turn's result. Repairing twice changes nothing more, and what is unchanged is the same object. A
message is never deleted. The author's hook may choose another part; when it fails, the default stands and the failure
is reported.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from runner.core.transcript.chunk import encode
from runner.core.transcript.stored_message import NOTES, public_part
from runner.core.transcript.tool_state import (
    Event,
    Message,
    Part,
    State,
    approval_of,
    awaits_human,
    is_call,
    is_denied,
    is_settled,
    is_tool,
    moved,
    normalized_input,
    same_call,
    state_of,
    tool_name,
)

Hook = Callable[[Part], Part | None]
"""Given an interrupted tool part, returns the part to store instead, or None for the default."""

INTERRUPTED = "This call was cut off before a result was stored. Whether it took effect is unknown."
INPUT_CUT = "This call was cut off before its input was complete. It was not run."
NEVER_RUN = "This call was approved, but a newer message came before it could run. It was not run."
SUPERSEDED = "The user sent a new message instead of answering."

MOST_PART_BYTES = 65_536
"""Bytes of JSON that a hook's part may have; more would not fit beside the rest of a history."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A hook that failed for one call: what it did wrong, and the exception if it raised one."""

    call_id: str
    tool_name: str
    text: str
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """The repaired history and what was done to it.

    `messages` is the given list itself when nothing changed; `touched` are the indexes of the messages to store again.
    By call id, in order: `repaired` got a result, `normalized` got an object as input, `doubled` was recorded twice.
    """

    messages: list[Message]
    touched: tuple[int, ...] = ()
    repaired: tuple[str, ...] = ()
    normalized: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def repair(
    messages: list[Message],
    hook: Hook | None = None,
    *,
    client_tools: Collection[str] = frozenset(),
    continuation: bool = False,
    superseded: bool | None = None,
    leave: Collection[str] = frozenset(),
) -> Repair:
    """The history with a result for every call that was interrupted.

    `continuation`: the turn goes on with an answer that exists, or one that will is waiting: approved calls are about
    to run and are kept. Otherwise those before the last message have been passed by and are settled.
    `superseded`: whether the user has moved past calls that wait for a human; None: those that a user message follows.
    `leave`: ids of calls of the last step that will be re-issued, such as a child to re-attach to.
    """
    pass_ = _Pass(hook, frozenset(client_tools), continuation, superseded, frozenset(leave))
    last = len(messages) - 1
    asked = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    repaired = [
        pass_.message(message, is_last=index == last, user_follows=index < asked)
        for index, message in enumerate(messages)
    ]
    touched = tuple(index for index, message in enumerate(repaired) if message is not messages[index])
    notes = pass_.notes
    return Repair(
        repaired if touched else messages,
        touched,
        tuple(notes.repaired),
        tuple(notes.normalized),
        tuple(notes.doubled),
        tuple(notes.problems),
    )


class _Fate(Enum):
    KEEP = auto()
    NORMALIZE = auto()
    DENY = auto()
    INTERRUPTED = auto()
    NEVER_RUN = auto()
    SUPERSEDED = auto()


@dataclass(slots=True)
class _Notes:
    repaired: list[str] = field(default_factory=list)
    normalized: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Place:
    is_last: bool
    user_follows: bool
    left: bool


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass over a history."""

    hook: Hook | None
    client_tools: frozenset[str]
    continuation: bool
    superseded: bool | None
    leave: frozenset[str]
    notes: _Notes = field(default_factory=_Notes)

    def message(self, message: Message, *, is_last: bool, user_follows: bool) -> Message:
        """The message itself when nothing of it changes, else a repaired copy."""
        given = message.get("parts")
        if message.get("role") != "assistant" or not isinstance(given, list) or not any(map(is_call, given)):
            return message
        parts: list[Any] = []
        steps = list(_steps(given))
        for number, step in enumerate(steps, 1):
            in_last_step = is_last and number == len(steps)
            repaired = [
                self._part(part, _Place(is_last, user_follows, in_last_step and self._is_left(part)))
                for part in self._single(step)
            ]
            parts += self._single(repaired)  # a hook may have made two calls the same
        if len(parts) != len(given):
            message = {key: value for key, value in message.items() if key != NOTES}  # they point at parts by position
        elif all(new is old for new, old in zip(parts, given, strict=True)):
            return message
        return {**message, "parts": parts}

    def _is_left(self, part: Any) -> bool:
        return is_call(part) and part["toolCallId"] in self.leave

    def _single(self, step: list[Any]) -> list[Any]:
        """The step with each call once: the first settled record, else the furthest one, at the place of the first."""
        kept: list[Any] = []
        places: dict[str, list[int]] = {}
        for part in step:
            same_id = places.setdefault(part["toolCallId"], []) if is_call(part) else []
            twin = next((index for index in same_id if _is_copy(part, kept[index])), -1)
            if twin < 0:
                same_id.append(len(kept))
                kept.append(part)
                continue
            self.notes.doubled.append(part["toolCallId"])
            if _rank(part) > _rank(kept[twin]):
                kept[twin] = part
        return kept

    def _part(self, part: Any, place: _Place) -> Any:
        fate = self._fate(part, place)
        if fate is _Fate.KEEP:
            return part
        sound, changed = _sound(part)
        if changed:
            self.notes.normalized.append(part["toolCallId"])
        if fate is _Fate.NORMALIZE:
            return sound
        self.notes.repaired.append(part["toolCallId"])
        default = _default(public_part(sound), fate)
        return default if self.hook is None or fate is _Fate.DENY else self._chosen(sound, default)

    def _fate(self, part: Any, place: _Place) -> _Fate:
        if not is_call(part):
            return _Fate.KEEP
        if is_settled(part):
            return _Fate.NORMALIZE
        if state_of(part) is State.APPROVAL_RESPONDED:
            if self.continuation or place.is_last:
                return _Fate.KEEP
            return _Fate.DENY if is_denied(part) else _Fate.NEVER_RUN
        if place.left:
            return _Fate.KEEP
        if not awaits_human(part, self.client_tools):
            return _Fate.INTERRUPTED
        moved_past = place.user_follows if self.superseded is None else self.superseded
        return _Fate.SUPERSEDED if moved_past else _Fate.KEEP

    def _chosen(self, part: Part, default: Part) -> Part:
        """What the hook returns for the part, or the default."""
        assert self.hook is not None
        shown = public_part(part)
        try:
            chosen: Any = self.hook(copy.deepcopy(shown))
            unchanged = chosen is None or chosen == shown
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything; the turn goes on
            return self._failed(part, f"raised {type(error).__name__}: {error}", default, error)
        if unchanged:
            return default
        breach = _breach(chosen, part["toolCallId"])
        if breach:
            return self._failed(part, breach, default)
        try:
            stored = _as_stored(chosen)
        except (TypeError, ValueError, RecursionError) as why:
            return self._failed(part, f"returned a part that is not JSON that can be stored ({why})", default)
        return _sound(public_part(stored))[0]

    def _failed(self, part: Part, text: str, default: Part, error: Exception | None = None) -> Part:
        said = f"repair_interrupted_tool_part {text}; the default result is stored"
        self.notes.problems.append(Problem(part["toolCallId"], tool_name(part), said, error))
        return default


def _steps(parts: list[Any]) -> Iterator[list[Any]]:
    step: list[Any] = []
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "step-start" and step:
            yield step
            step = []
        step.append(part)
    yield step


def _is_copy(part: Any, other: Any) -> bool:
    if not is_call(part) or not is_call(other) or part["toolCallId"] != other["toolCallId"]:
        return False
    return same_call(_sound(part)[0], _sound(other)[0])


def _rank(part: Part) -> int:
    state = state_of(part)
    return len(State) if is_settled(part) else -1 if state is None else list(State).index(state)


def _sound(part: Part) -> tuple[Part, bool]:
    """The part with an object as its input; a part that is no call has none."""
    if not is_call(part):
        return part, False
    value, changed = normalized_input(part.get("input"))
    return ({**part, "input": value}, True) if changed else (part, False)


def _default(part: Part, fate: _Fate) -> Part:
    match fate, state_of(part):
        case _Fate.DENY, _:
            return {**part, "state": State.OUTPUT_DENIED.value}
        case _Fate.SUPERSEDED, State.APPROVAL_REQUESTED:
            refused = {"id": part["toolCallId"], **approval_of(part), "approved": False, "reason": SUPERSEDED}
            return {**part, "state": State.OUTPUT_DENIED.value, "approval": refused}
        case _Fate.SUPERSEDED, _:
            return _errored(part, SUPERSEDED)
        case _Fate.NEVER_RUN, _:
            return _errored(part, NEVER_RUN)
        case _, State.INPUT_STREAMING:
            return _errored(part, INPUT_CUT)
        case _:
            return _errored(part, INTERRUPTED)


def _errored(part: Part, text: str) -> Part:
    """The part with an error as its result. An approval that nobody gave goes: clients refuse an error beside one."""
    known = part if state_of(part) is not None else {**part, "state": State.INPUT_AVAILABLE.value}
    errored = moved(known, Event.INTERRUPT, errorText=text)
    assert errored is not None, "an interrupted call is not settled"
    if approval_of(errored).get("approved") is not True:
        errored.pop("approval", None)
    return errored


def _breach(chosen: Any, call_id: str) -> str:
    """What is wrong with a part that a hook returned; empty when nothing is."""
    if not isinstance(chosen, dict) or not isinstance(chosen.get("type"), str):
        return f"returned {type(chosen).__name__}, not a part; return a part with a type, or None for the default"
    if is_tool(chosen) and chosen.get("toolCallId") != call_id:
        return f"returned a tool part of another call; keep toolCallId {call_id!r}, or return a part of another kind"
    if is_tool(chosen) and not is_settled(chosen):
        return (
            f"returned a tool part in state {chosen.get('state')!r}, which has no result; "
            "settle it (output-available, output-error or output-denied), or return a part of another kind"
        )
    return ""


def _as_stored(chosen: Part) -> Part:
    """A hook's part in the copy that every later attempt will read. Raises for what cannot be stored."""
    stored: Part = json.loads(json.dumps(chosen, allow_nan=False))
    size = len(encode(stored))
    if size > MOST_PART_BYTES:
        raise ValueError(f"{size:,} bytes, the limit is {MOST_PART_BYTES:,}")
    return stored
