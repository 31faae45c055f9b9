"""The parts of a message, and where each is found without looking through all of them.

Rules of this file: the current step is what follows the last `step-start`; parts are only added at the end, or taken
away from the current step. A tool part is static (`tool-NAME`) or dynamic, and stays so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Part = dict[str, Any]
Message = dict[str, Any]


def is_tool_type(kind: object) -> bool:
    """Whether parts of that type are tool parts."""
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


class PartList:
    """The parts in order; `step_begin` is the index of the first one of the current step."""

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.items: list[Part] = []
        self.step_begin = 0
        self._in_step: dict[tuple[str, bool], int] = {}
        self._of_call: dict[str, list[int]] = {}
        self._data: dict[tuple[str, str], int] = {}
        for part in parts:
            self.append(part)

    def __len__(self) -> int:
        return len(self.items)

    def append(self, part: Part) -> int:
        """Adds a part; returns its index."""
        index = len(self.items)
        self.items.append(part)
        kind = part.get("type")
        if kind == "step-start":
            self.step_begin = index + 1
            self._in_step = {}
        elif (call_id := call_of(part)) is not None:
            self._in_step.setdefault((call_id, kind == "dynamic-tool"), index)
            self._of_call.setdefault(call_id, []).append(index)
        elif (key := _data_key(part)) is not None:
            self._data.setdefault(key, index)
        return index

    def drop_step(self) -> None:
        """Takes away every part of the current step."""
        for index in reversed(range(self.step_begin, len(self.items))):
            part = self.items[index]
            if (call_id := call_of(part)) is not None:
                self._of_call[call_id].pop()  # the last of its call: all behind it are gone already
            elif (key := _data_key(part)) is not None and self._data.get(key) == index:
                del self._data[key]
        del self.items[self.step_begin :]
        self._in_step = {}

    def in_step(self, call_id: str) -> int | None:
        """The first tool part of the current step with that call id."""
        found = [index for dynamic in (False, True) if (index := self.of_kind(call_id, dynamic)) is not None]
        return min(found, default=None)

    def of_kind(self, call_id: str, dynamic: bool) -> int | None:
        """The first tool part of the current step with that call id, of one of the two kinds."""
        return self._in_step.get((call_id, dynamic))

    def anywhere(self, call_id: str) -> int | None:
        """The first tool part of the current step with that call id, else the last one of the message."""
        index = self.in_step(call_id)
        return index if index is not None else next(reversed(self._of_call.get(call_id, ())), None)

    def of_approval(self, approval_id: str) -> int | None:
        """The first tool part with that approval id."""
        for index, part in enumerate(self.items):
            approval = part.get("approval")
            if isinstance(approval, dict) and approval.get("id") == approval_id and is_tool_type(part.get("type")):
                return index
        return None

    def data(self, kind: str, data_id: str) -> int | None:
        """The first part with that type and id."""
        return self._data.get((kind, data_id))


def call_of(part: Part) -> str | None:
    """The call id of a tool part; None for any other part."""
    call_id = part.get("toolCallId")
    return call_id if isinstance(call_id, str) and is_tool_type(part.get("type")) else None


def _data_key(part: Part) -> tuple[str, str] | None:
    kind, data_id = part.get("type"), part.get("id")
    return (kind, data_id) if isinstance(kind, str) and isinstance(data_id, str) else None
