"""What a stored message says beside what clients see: the builder's own notes.

Rules of this file: a note is a private field of the value it is about, so that it survives storage with it: NOTES of
the message, MARK of a tool part. Clients, hooks and models are shown the public message only. A field that others wrote
under a name of ours is checked before it is believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from runner.core.transcript.part_list import Message, Part, is_tool_type

NOTES = "_fold"
"""Of a message: the text and reasoning ids that are open, and what is known of each call's streamed input."""

MARK = "_provisional"
"""Of a tool part: whether its input came from deltas. Without it, `is_provisional` judges by the other fields."""


_HALF = re.compile("[\ud800-\udfff]")


def is_provisional(part: Part) -> bool:
    """Whether the part's present input was parsed from deltas and is not canonical yet."""
    if "input" not in part:
        return False
    mark = part.get(MARK)
    return mark if isinstance(mark, bool) else _looks_provisional(part)


def mark_provisional(part: Part, value: bool) -> None:
    """Notes whether the input came from deltas; nothing is noted where the other fields say as much."""
    if value:
        part[MARK] = True
    elif _looks_provisional(part):
        part[MARK] = False
    else:
        part.pop(MARK, None)


def judged(part: Part) -> Part:
    """A copy of a part that was loaded; if it is a tool part, it is judged now, by the fields it has now."""
    copy = dict(part)
    if is_tool_type(copy.get("type")) and not isinstance(copy.get(MARK), bool):
        copy.pop(MARK, None)
        if _looks_provisional(copy):
            copy[MARK] = True
    return copy


def provisional_calls(message: Message) -> list[str]:
    """The call ids of the parts whose input is provisional, in order."""
    parts = message.get("parts")
    tools = [part for part in parts if is_tool(part)] if isinstance(parts, list) else []
    return [str(part.get("toolCallId")) for part in tools if is_provisional(part)]


def is_tool(part: object) -> bool:
    """Whether it is a tool part."""
    return isinstance(part, dict) and is_tool_type(part.get("type"))


def public(message: Message) -> Message:
    """The message as clients see it. Nothing is copied that stays as it is."""
    shown = {key: value for key, value in message.items() if key != NOTES}
    parts = shown.get("parts")
    if isinstance(parts, list):
        shown["parts"] = [public_part(part) for part in parts]
    return shown


def public_part(part: Any) -> Any:
    """A part as clients see it."""
    if is_tool(part) and MARK in part:
        return {key: value for key, value in part.items() if key != MARK}
    return part


def copied(value: Any) -> Any:
    """A copy of a JSON value, lists and objects included."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def joined(pieces: Iterable[str]) -> str:
    """Text put together; the halves of a surrogate pair that came in two pieces become one character."""
    text = "".join(pieces)
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def units(text: str) -> int:
    """The length of text in UTF-16 units, the same however the text is cut."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _looks_provisional(part: Part) -> bool:
    return "input" in part and ("rawInput" in part or part.get("state") == "input-streaming")
