"""Tool input that comes in pieces: what is known of each call, and when its text is parsed.

Rules of this file: a delta costs the same however long the text is. The text is put together and parsed when somebody
looks at the part, or when anything but a further delta changes it. A draft outlives its input: a later delta without a
new start goes on with the old text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from runner.core.transcript.chunk import Chunk
from runner.core.transcript.part_list import Part, call_of
from runner.core.transcript.partial_json import MISSING, parse_partial
from runner.core.transcript.stored_message import joined, mark_provisional

_KEPT = ("toolName", "dynamic", "inputEncoding", "title", "toolMetadata")


@dataclass(slots=True)
class Draft:
    """What the last `tool-input-start` of a call said, and the text since."""

    facts: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    at: int | None = None
    """The part that shows exactly this text; None when the last change of that part was another."""
    is_stale: bool = False
    """Whether that part must be written before it is read."""
    shows_raw: bool = True

    @property
    def tool_name(self) -> str:
        """The tool's name."""
        return str(self.facts["toolName"])

    @property
    def dynamic(self) -> bool:
        """Whether its part is a dynamic one."""
        return self.facts.get("dynamic") is True

    def text(self) -> str:
        """The text so far."""
        whole = joined(self.pieces)
        self.pieces[:] = [whole]
        return whole

    def write(self, part: Part) -> None:
        """Gives the part the input that the text makes."""
        text = self.text()
        value = text if self.facts.get("inputEncoding") == "text" else parse_partial(text)
        if value is MISSING:
            part.pop("input", None)
        else:
            part["input"] = value
        if self.shows_raw:
            part["rawInput"] = text
        mark_provisional(part, value is not MISSING)
        self.is_stale = False


class Drafts:
    """The drafts by call id, and which parts show one."""

    def __init__(self) -> None:
        self._of_call: dict[str, Draft] = {}
        self._shown: dict[int, Draft] = {}

    def get(self, call_id: str) -> Draft | None:
        """The draft of a call."""
        return self._of_call.get(call_id)

    def begin(self, call_id: str, start: Chunk) -> None:
        """A new draft for the call."""
        self._of_call[call_id] = Draft({key: start[key] for key in _KEPT if key in start})

    def show(self, draft: Draft, index: int, *, shows_raw: bool) -> None:
        """Lets a part show the draft's text from now on."""
        draft.at, draft.is_stale, draft.shows_raw = index, True, shows_raw
        self._shown[index] = draft

    def settle(self, index: int, parts: list[Part], *, is_read: bool = True) -> Part:
        """The part as it is, and unless nobody reads it with its input written; from now on it shows no draft."""
        draft = self._shown.pop(index, None)
        if draft is not None:
            if draft.is_stale and is_read:
                draft.write(parts[index])
            draft.at = None
        return parts[index]

    def write_all(self, parts: list[Part]) -> None:
        """Writes every part that must be written before it is read."""
        for index, draft in self._shown.items():
            if draft.is_stale:
                draft.write(parts[index])

    def clear(self, parts: list[Part]) -> None:
        """Forgets all drafts; the parts that are left keep their input."""
        for index in [index for index in self._shown if index < len(parts)]:
            self.settle(index, parts)
        self._of_call, self._shown = {}, {}

    def dump(self) -> dict[str, dict[str, Any]]:
        """The drafts as JSON values."""
        return {call_id: {"text": draft.text(), **draft.facts} for call_id, draft in self._of_call.items()}

    @classmethod
    def load(cls, dumped: Any) -> Drafts:
        """What `dump` wrote; what is no draft is passed over."""
        drafts = cls()
        for call_id, stored in dumped.items() if isinstance(dumped, dict) else ():
            match stored:
                case {"text": str(text), "toolName": str()}:
                    facts = {key: stored[key] for key in _KEPT if key in stored}
                    drafts._of_call[call_id] = Draft(facts, [text])
                case _:
                    pass
        return drafts

    @classmethod
    def from_parts(cls, step: Iterable[Part]) -> Drafts:
        """The drafts that a message without notes of its own can go on with: those of the parts of its last step."""
        drafts = cls()
        for call_id, part in _streaming(step):
            facts: dict[str, Any] = {
                key: part[key] for key in ("inputEncoding", "title", "toolMetadata") if key in part
            }
            dynamic = part["type"] == "dynamic-tool"
            facts["toolName"] = str(part.get("toolName", "")) if dynamic else part["type"].removeprefix("tool-")
            facts["dynamic"] = dynamic
            raw = part.get("rawInput")
            drafts._of_call[call_id] = Draft(facts, [raw] if isinstance(raw, str) else [])
        return drafts


def _streaming(step: Iterable[Part]) -> Iterator[tuple[str, Part]]:
    for part in step:
        if part.get("state") == "input-streaming" and (call_id := call_of(part)) is not None:
            yield call_id, part
