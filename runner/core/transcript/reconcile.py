"""Reconciling: two records of the same answer, or of the same history, become one.

Rules of this file: a client's answer and a settled result always win (I4, I15), order is kept, nothing is doubled.
Rows of a history are matched one to one and in order, never across the conversation: a call id that is used again is
another call unless tool and input are the same too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from runner.core.transcript.stored_message import NOTES, is_provisional, mark_provisional, units
from runner.core.transcript.tool_state import (
    Message,
    Part,
    State,
    is_call,
    is_settled,
    is_tool,
    parts_of,
    same_call,
    same_json,
    state_of,
    tool_name,
)

Sanitize = Callable[[Message], Message]
"""Takes out of a message what storage changed, so that two copies can be compared."""

_PENDING = (State.INPUT_AVAILABLE, State.APPROVAL_REQUESTED, State.APPROVAL_RESPONDED)
_UNDONE = (*_PENDING, State.INPUT_STREAMING)
_RESULT_OF: dict[State | None, str] = {
    State.OUTPUT_AVAILABLE: "output",
    State.OUTPUT_ERROR: "errorText",
    State.OUTPUT_DENIED: "approval",
}
_CALL_FIELDS = ("title", "toolMetadata", "providerExecuted", "callProviderMetadata")


def reconcile(stored: Message, replayed: Message) -> Message:
    """One message of a stored one and its replay from the first chunk.

    Both record the same answer; either may be ahead. Steps are matched by their number, parts within a step in order.
    Where the two contradict each other the replay is right, but for results and answers. Id and role are the stored
    ones, metadata is overlaid by the replay's. The builder's notes are those of the record whose text the result has,
    so that it can be continued; none when it has the text of both.
    """
    steps: Iterator[tuple[list[Part], list[Part]]] = zip_longest(
        _steps(parts_of(stored)), _steps(parts_of(replayed)), fillvalue=[]
    )
    parts = [part for ours, theirs in steps for part in _merged_step(ours, theirs)]
    kept = {key: stored[key] for key in ("id", "role") if stored.get(key)}
    merged = {**stored, **replayed, **kept, "parts": parts, **_metadata(stored, replayed)}
    merged.pop(NOTES, None)
    return {**merged, **next((_notes(side) for side in (replayed, stored) if _tells(side, parts)), {})}


def merge_orphan(existing: Message, incoming: Message) -> Message:
    """A stored message and parts that came after it: what is stored stays, calls it knows are not added again.

    For an `incoming` that holds only the continuation. Text is never compared; see `reconcile` for a full replay.
    """
    known = {part["toolCallId"] for part in parts_of(existing) if is_call(part)}
    added = [part for part in parts_of(incoming) if part.get("toolCallId") not in known]
    return {**existing, **incoming, "parts": [*parts_of(existing), *added], **_metadata(existing, incoming)}


def reconcile_messages(
    incoming: Sequence[Message], stored: Sequence[Message], sanitize: Sanitize | None = None
) -> list[Message]:
    """A client's history with what is stored: its messages get the stored ids, its pending calls the stored results.

    A copy of a call that is settled on another row of this history is dropped, unless it is the last message.
    """
    claims = claimed_rows(incoming, stored, sanitize)
    merged = [
        _with_results({**message, "id": stored[claims[index]]["id"]}, stored[claims[index]])
        if index in claims
        else message
        for index, message in enumerate(incoming)
    ]
    settled = [part for row in claims.values() for part in parts_of(stored[row]) if is_call(part) and is_settled(part)]
    known = {row.get("id") for row in stored}
    return [
        message
        for index, message in enumerate(merged)
        if index in claims or index == len(merged) - 1 or not _is_stale(message, settled, known)
    ]


def claimed_rows(
    incoming: Sequence[Message], stored: Sequence[Message], sanitize: Sanitize | None = None
) -> dict[int, int]:
    """For each incoming message that is stored, the index of its row. A row is claimed once: first by its id, then by
    its calls, or by its content when there are none."""
    claims: dict[int, int] = {}
    free = list(range(len(stored)))
    for index, message in enumerate(incoming):
        _claim(claims, free, index, [row for row in free if stored[row].get("id") == message.get("id")])
    clean = sanitize or _as_it_is
    rows = [clean(row) for row in stored]
    for index, message in enumerate(incoming):
        if index not in claims and message.get("role") == "assistant":
            shown = clean(message)
            _claim(claims, free, index, [row for row in free if _is_twin(shown, rows[row])])
    return claims


def sanitized(message: Message) -> Message:
    """The message without what providers number anew on each request, for comparing copies. Not for storing: a thought
    without its mark cannot go back to its provider."""
    kept = [part for part in map(_without_numbers, parts_of(message)) if not _is_empty_thought(part)]
    return {**message, "parts": kept}


def _tells(side: Message, parts: list[Part]) -> bool:
    """Whether the record has the same parts in the same places, the state of its calls apart."""
    own = parts_of(side)
    return len(own) == len(parts) and all(
        is_call(one) if is_call(other) else same_json(one, other) for one, other in zip(own, parts, strict=True)
    )


def _notes(side: Message) -> dict[str, Any]:
    return {NOTES: side[NOTES]} if NOTES in side else {}


def _as_it_is(message: Message) -> Message:
    return message


def _steps(parts: list[Part]) -> Iterator[list[Part]]:
    """What precedes the first step, then each step with its step-start."""
    step: list[Part] = []
    for part in parts:
        if part.get("type") == "step-start":
            yield step
            step = []
        step.append(part)
    yield step


def _merged_step(ours: list[Part], theirs: list[Part]) -> Iterator[Part]:
    """The replay's parts in its order, each merged with its match. What only we have comes after the part it followed:
    if the replay has nothing there, or if it must not be lost."""
    pairs = _pairs(ours, theirs)
    matched = {at: ours[index] for index, at in pairs.items()}
    only_ours: dict[int, list[Part]] = {}
    before = -1
    for index, part in enumerate(ours):
        before = max(before, pairs.get(index, -1))
        replay_ends = before + 1 == len(theirs) or before + 1 in matched
        if index not in pairs and (replay_ends or _must_stay(part)):
            only_ours.setdefault(before, []).append(part)
    yield from only_ours.get(-1, [])
    for at, part in enumerate(theirs):
        yield _merged_part(matched[at], part) if at in matched else part
        yield from only_ours.get(at, [])


def _pairs(ours: list[Part], theirs: list[Part]) -> dict[int, int]:
    """Which part of ours is which of theirs: calls by their id wherever they stand, then the others in order, never
    across a call."""
    numbered = {key: at for at, key in enumerate(_keys(theirs)) if key is not None}
    pairs = {index: numbered[key] for index, key in enumerate(_keys(ours)) if key in numbered}
    taken = set(pairs.values())
    begin = 0
    for index, part in enumerate(ours):
        if index in pairs:
            begin = max(begin, pairs[index] + 1)
            continue
        end = next((at for at in range(begin, len(theirs)) if at in taken), len(theirs))
        at = next((at for at in range(begin, end) if _is_same(part, theirs[at])), -1)
        if at >= 0:
            pairs[index], begin = at, at + 1
    return pairs


def _keys(parts: list[Part]) -> Iterator[tuple[str, ...] | None]:
    """The identity of each part that has one: kind, tool, id, and which of those it is."""
    seen: Counter[tuple[str, ...]] = Counter()
    for part in parts:
        named = part["toolCallId"] if is_call(part) else part.get("id") if _is_data(part) else None
        if not isinstance(named, str):
            yield None
            continue
        key = (part["type"], tool_name(part), named)
        seen[key] += 1
        yield (*key, str(seen[key]))


def _is_data(part: Part) -> bool:
    return str(part.get("type")).startswith("data-")


def _must_stay(part: Part) -> bool:
    return is_call(part) and (is_settled(part) or state_of(part) is State.APPROVAL_RESPONDED)


def _is_same(ours: Part, theirs: Part) -> bool:
    """Whether two parts without an identity are the same, which may have grown in between."""
    if ours.get("type") != theirs.get("type"):
        return False
    if ours.get("type") in ("text", "reasoning"):
        one, other = _whole_characters(ours), _whole_characters(theirs)
        return one.startswith(other) or other.startswith(one)
    return same_json(ours, theirs)


def _merged_part(ours: Part, theirs: Part) -> Part:
    if is_call(ours):
        return _merged_call(ours, theirs)
    if ours.get("type") in ("text", "reasoning"):
        return max(theirs, ours, key=_told)
    return theirs


def _told(part: Part) -> tuple[int, bool]:
    return units(_text(part)), part.get("state") != "streaming"


def _text(part: Part) -> str:
    return str(part.get("text") or "")


def _whole_characters(part: Part) -> str:
    """The text without the first half of a character at its end, whose other half may be in the next delta."""
    text = _text(part)
    return text[:-1] if "\ud800" <= text[-1:] <= "\udbff" else text


def _merged_call(ours: Part, theirs: Part) -> Part:
    """The record that is further along; of two results the stored one, of two answers the replay's, which knows the
    last. It learns from the other what it does not say."""
    if _progress(ours) > _progress(theirs) or (is_settled(ours) and is_settled(theirs)):
        return _with_call(ours, theirs)
    merged, given, known = _with_call(theirs, ours), ours.get("approval"), theirs.get("approval") or {}
    if isinstance(given, dict) and "approved" in given and "approved" not in known:
        return {**merged, "approval": {**known, **given}}
    return merged


def _with_call(part: Part, other: Part) -> Part:
    """The part with what the other record says of the call itself: fields that are missing, and the whole input while
    only a guess from deltas is there (I5). A call with a result has run on the input that it has."""
    told = {key: other[key] for key in _CALL_FIELDS if key in other and key not in part}
    wants_input = "input" not in part or (is_provisional(part) and not is_settled(part))
    if "input" in other and not is_provisional(other) and wants_input:
        told["input"] = other["input"]
    if not told:
        return part
    merged = {**part, **told}
    if "input" in told:
        mark_provisional(merged, False)
    return merged


def _progress(part: Part) -> int:
    state = state_of(part)
    return len(State) if is_settled(part) else -1 if state is None else list(State).index(state)


def _metadata(ours: Message, theirs: Message) -> dict[str, Any]:
    one, other = ours.get("metadata"), theirs.get("metadata")
    if isinstance(one, dict) and isinstance(other, dict):
        return {"metadata": {**one, **other}}
    told = one if other is None else other
    return {} if told is None else {"metadata": told}


def _claim(claims: dict[int, int], free: list[int], index: int, fitting: list[int]) -> None:
    if fitting:
        claims[index] = fitting[0]
        free.remove(fitting[0])


def _is_twin(message: Message, row: Message) -> bool:
    """Whether two messages are copies: calls with one id are one call, pair by pair; without calls the content says."""
    if row.get("role") != "assistant":
        return False
    ours, theirs = _calls(message), _calls(row)
    if not ours and not theirs:
        return same_json(parts_of(message), parts_of(row))
    shared = ours.keys() & theirs.keys()
    return bool(shared) and all(all(map(same_call, ours[call_id], theirs[call_id])) for call_id in shared)


def _calls(message: Message) -> dict[str, list[Part]]:
    calls: dict[str, list[Part]] = {}
    for part in parts_of(message):
        if is_call(part):
            calls.setdefault(part["toolCallId"], []).append(part)
    return calls


def _with_results(message: Message, row: Message) -> Message:
    """The message with the results of its pending calls that are stored on its row."""
    given = parts_of(message)
    twins = dict(zip(_keys(parts_of(row)), parts_of(row), strict=True))
    parts = [_with_result(part, twins.get(key) if key else None) for key, part in zip(_keys(given), given, strict=True)]
    same = all(new is old for new, old in zip(parts, given, strict=True))
    return message if same else {**message, "parts": parts}


def _with_result(part: Part, twin: Part | None) -> Part:
    if twin is None or state_of(part) not in _PENDING or not is_settled(twin):
        return part
    key = _RESULT_OF.get(state_of(twin))
    return part if key is None else {**part, "state": twin["state"], **({key: twin[key]} if key in twin else {})}


def _is_stale(message: Message, settled: list[Part], known: set[Any]) -> bool:
    """Whether the message only repeats calls that are settled elsewhere."""
    if message.get("role") != "assistant" or message.get("id") in known:
        return False
    calls = [part for part in parts_of(message) if part.get("type") != "step-start"]
    return bool(calls) and all(
        is_tool(part) and state_of(part) in _UNDONE and any(same_call(part, other) for other in settled)
        for part in calls
    )


def _without_numbers(part: Part) -> Part:
    cleaned = dict(part)
    for key in ("providerMetadata", "callProviderMetadata"):
        marks = part.get(key)
        openai = marks.get("openai") if isinstance(marks, dict) else None
        if not isinstance(marks, dict) or not isinstance(openai, dict):
            continue
        rest = {name: value for name, value in openai.items() if name not in ("itemId", "reasoningEncryptedContent")}
        others = {name: value for name, value in marks.items() if name != "openai"}
        cleaned[key] = {**others, **({"openai": rest} if rest else {})}
        if not cleaned[key]:
            del cleaned[key]
    return cleaned


def _is_empty_thought(part: Part) -> bool:
    return (
        part.get("type") == "reasoning" and not str(part.get("text") or "").strip() and not part.get("providerMetadata")
    )
