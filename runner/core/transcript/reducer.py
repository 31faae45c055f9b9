"""Chunks become a message: one fold for live, replay, recovery and clients.

Rules of this file: it is the AI SDK's own reducer, with the differences that `tool_calls` names. It never raises on
what comes from outside: what a stock client would die on is refused and changes nothing (the stream keeps it). It is a
fold: splitting a delta changes nothing, and a JSON round trip of the stored message between any two chunks changes
nothing. A delta costs the same however long the part is: texts are put together when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from runner.core.transcript.chunk import Chunk
from runner.core.transcript.metadata import Unmergeable, merged
from runner.core.transcript.part_list import Message, Part, PartList
from runner.core.transcript.stored_message import NOTES, copied, joined, judged, public, public_part, units
from runner.core.transcript.tool_calls import TOOL_CHUNKS, UNFITTING, Forward, ToolCalls, is_settled
from runner.core.transcript.tool_input import Drafts
from runner.core.transcript.wire import Refusal, Why, refusal_of

__all__ = ["Effect", "Fold", "Message", "Part", "Reduction", "fold_all", "public", "reduce"]

_KINDS = ("text", "reasoning")
_WHOLE: Mapping[str, tuple[str, ...]] = {
    "file": ("mediaType", "url", "providerMetadata"),
    "reasoning-file": ("mediaType", "url", "providerMetadata"),
    "source-url": ("sourceId", "url", "title", "providerMetadata"),
    "source-document": ("sourceId", "mediaType", "title", "filename", "providerMetadata"),
    "custom": ("kind", "providerMetadata"),
    "steering-message": ("id", "parts"),
}
"""Parts that come in one chunk, and what of it they keep."""


class Effect(NamedTuple):
    """What became of a chunk: what AI clients are sent for it, and why it was refused if it was."""

    forward: tuple[Chunk, ...]
    refusal: Refusal | None = None

    @property
    def rejected(self) -> bool:
        """Whether a stock client would have died on it."""
        return self.refusal is not None


class Reduction(NamedTuple):
    """The stored message after a chunk, what AI clients are sent for the chunk, and whether it was refused."""

    message: Message
    forward: tuple[Chunk, ...]
    rejected: bool


class Fold:
    """The message so far, and which of its parts are still open."""

    def __init__(self, message_id: str, *, replay: bool = False) -> None:
        """An empty message. With `replay` the first `start` empties the message, as it does at clients that resume."""
        self.started = False
        self.finished_steps = 0
        self.in_step = False
        self.finish_reason: str | None = None
        self.given_up = 0
        """The size of the largest version of the unfinished step that was dropped."""
        self._replay = replay
        self._empty(message_id)

    @property
    def message_id(self) -> str:
        """The message's id."""
        return str(self._head["id"])

    @classmethod
    def of(cls, message: Message, *, replay: bool = False) -> Fold:
        """The fold that goes on from a stored message, with or without notes. `message` stays as it is.

        From a message without notes only unfinished tool input of its last step can be continued. A message that is no
        assistant's is not continued: the answer to it begins with its id."""
        fold = cls(str(message.get("id", "")), replay=replay)
        if message.get("role") == "assistant":
            notes = message.get(NOTES)
            head = {key: value for key, value in message.items() if key not in ("parts", NOTES)}
            fold._adopt({**head, "id": fold.message_id}, message.get("parts"), notes if isinstance(notes, dict) else {})
        return fold

    def apply(self, chunk: Chunk) -> Effect:
        """Takes one chunk in. What is unknown, malformed or does not fit is refused and changes nothing."""
        kind = chunk.get("type")
        if not _is_plain_delta(kind, chunk) and (refusal := refusal_of(chunk)) is not None:
            return Effect((), refusal)
        try:
            forward = self._take(str(kind), chunk)
        except Unmergeable:
            return Effect((), Refusal(Why.UNFITTING, "messageMetadata"))
        return _NOT_THERE if forward is None else Effect(forward)

    def _take(self, kind: str, chunk: Chunk) -> Forward:
        if (act := _ACTS.get(kind)) is not None:
            return act(self, chunk)
        if (of_tool := TOOL_CHUNKS.get(kind)) is not None:
            return of_tool(self._calls, chunk)
        return self._data(chunk)

    def closing(self) -> list[Chunk]:
        """The chunks that end every open text and reasoning part, oldest first: what a new owner writes before it goes
        on. Unfinished tool input is left as it is: what becomes of those calls is for repair to say."""
        left = [(index, kind, part_id) for kind in _KINDS for part_id, index in self._open[kind].items()]
        return [{"type": f"{kind}-end", "id": part_id} for _, kind, part_id in sorted(left)]

    def text(self) -> str:
        """All text of the message, joined in order."""
        return self._text_from(0)

    def step_text(self) -> str:
        """The text of the step that is under way."""
        return self._text_from(self._parts.step_begin)

    def has_news(self) -> bool:
        """Whether the unfinished step holds more than any version of it that was dropped: what only comes again is no
        progress."""
        return not self.given_up or self._step_size() > self.given_up

    def has_step_parts(self) -> bool:
        """Whether the step that is under way has any part yet."""
        return len(self._parts) > self._parts.step_begin

    def message(self) -> Message:
        """The message as clients see it, as a value of its own."""
        self._write_all()
        message: Message = copied({**self._head, "parts": [public_part(part) for part in self._parts.items]})
        return message

    def stored(self) -> Message:
        """The message with the notes that `Fold.of` goes on from. It shares its values with this fold."""
        notes: dict[str, Any] = {"open": {kind: dict(ids) for kind, ids in self._open.items()}}
        return {**self._with_parts(), NOTES: {**notes, "calls": self._calls.drafts.dump()}}

    def dump(self) -> dict[str, Any]:
        """The fold as JSON values: `Fold.load(fold.dump())` goes on exactly where this one is."""
        calls = self._calls.drafts.dump()
        optional = {"calls": copied(calls)} if calls else {}
        return {
            "v": 1,
            "message": copied(self._with_parts()),
            "open": copied(self._open),
            "started": self.started,
            "in_step": self.in_step,
            "finished_steps": self.finished_steps,
            "finish_reason": self.finish_reason,
            **optional,
            **({"replay": True} if self._replay else {}),
            **({"given_up": self.given_up} if self.given_up else {}),
        }

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> Fold:
        """The fold that `dump` wrote; `dumped` stays as it is."""
        message = dumped["message"]
        fold = cls(message["id"], replay=dumped.get("replay") is True)
        head = {key: value for key, value in message.items() if key != "parts"}
        fold._adopt(head, message["parts"], {"open": dumped["open"], "calls": dumped.get("calls", {})})
        fold.started = dumped["started"]
        fold.in_step = dumped["in_step"]
        fold.finished_steps = dumped["finished_steps"]
        fold.finish_reason = dumped["finish_reason"]
        fold.given_up = dumped.get("given_up", 0)
        return fold

    def _empty(self, message_id: str) -> None:
        self._head: Message = {"id": message_id, "role": "assistant"}
        self._parts = PartList()
        self._calls = ToolCalls(self._parts, Drafts())
        self._open: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS}
        self._pieces: dict[int, list[str]] = {}
        self._step_units = 0

    def _adopt(self, head: Message, parts: Any, notes: Mapping[str, Any]) -> None:
        self._head = head
        kept = [judged(part) for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        self._parts = PartList(kept)
        step = self._parts.items[self._parts.step_begin :]
        drafts = Drafts.load(notes["calls"]) if "calls" in notes else Drafts.from_parts(step)
        self._calls = ToolCalls(self._parts, drafts)
        for kind, part_id, index in _open_in(notes.get("open"), kept):
            self._open[kind][part_id] = index
            self._pieces[index] = [kept[index]["text"]]
        self._step_units = sum(units(str(part.get("text", ""))) for part in step if part.get("type") in _KINDS)

    def _with_parts(self) -> Message:
        self._write_all()
        return {**self._head, "parts": [dict(part) for part in self._parts.items]}

    def _write_all(self) -> None:
        self._calls.drafts.write_all(self._parts.items)
        for index in self._pieces:
            self._parts.items[index]["text"] = self._text_at(index)

    def _step_size(self) -> int:
        """How much the step holds: its text in UTF-16 units, one for each other part, one for each result."""
        others = [part for part in self._parts.items[self._parts.step_begin :] if part.get("type") not in _KINDS]
        return self._step_units + len(others) + sum(is_settled(part) for part in others)

    def _text_from(self, begin: int) -> str:
        texts = range(begin, len(self._parts))
        return "".join(self._text_at(index) for index in texts if self._parts.items[index].get("type") == "text")

    def _text_at(self, index: int) -> str:
        pieces = self._pieces.get(index)
        if pieces is None:
            text = self._parts.items[index].get("text")
            return text if isinstance(text, str) else ""
        pieces[:] = [joined(pieces)]
        return pieces[0]

    def _start(self, chunk: Chunk) -> Forward:
        new_id = chunk.get("messageId", self.message_id)
        if self._replay or new_id != self.message_id:
            self._replay = False
            self._empty(new_id)
            self.in_step, self.finished_steps, self.finish_reason, self.given_up = False, 0, None, 0
        self._merge_metadata(chunk)
        self.started = True
        return (chunk,)

    def _start_step(self, chunk: Chunk) -> Forward:
        self.in_step = True
        self._step_units = 0
        self._parts.append({"type": "step-start"})
        return (chunk,)

    def _finish_step(self, chunk: Chunk) -> Forward:
        self.in_step = False
        self.finished_steps += 1
        self.given_up = 0
        return (chunk,)

    def _reset_step(self, chunk: Chunk) -> Forward:
        self.given_up = max(self.given_up, self._step_size())
        self._write_all()
        self._parts.drop_step()
        self._calls.drafts.clear(self._parts.items)
        self._open = {kind: {} for kind in _KINDS}
        self._pieces = {}
        self._step_units = 0
        return (chunk,)

    def _open_text(self, chunk: Chunk) -> Forward:
        kind = chunk["type"].removesuffix("-start")
        part: Part = {"type": kind, "text": "", "state": "streaming"}
        if kind == "reasoning":
            part["id"] = chunk["id"]
        _carry_metadata(chunk, part)
        index = self._parts.append(part)
        before = self._open[kind].get(chunk["id"])
        if before is not None:
            self._close(before)
        self._open[kind][chunk["id"]] = index
        self._pieces[index] = []
        return (chunk,)

    def _delta(self, chunk: Chunk) -> Forward:
        index = self._open[chunk["type"].removesuffix("-delta")].get(chunk["id"])
        if index is None:
            return UNFITTING
        self._add(index, chunk["delta"])
        _carry_metadata(chunk, self._parts.items[index])
        return (chunk,)

    def _add(self, index: int, delta: str) -> None:
        self._pieces[index].append(delta)
        if index >= self._parts.step_begin:
            self._step_units += len(delta) if delta.isascii() else units(delta)

    def _end_text(self, chunk: Chunk) -> Forward:
        kind = chunk["type"].removesuffix("-end")
        index = self._open[kind].pop(chunk["id"], None)
        if index is None:
            return UNFITTING
        part = self._close(index)
        part["state"] = "done"
        if kind == "text" and "citations" in chunk:
            part["citations"] = chunk["citations"]
        _carry_metadata(chunk, part)
        return (chunk,)

    def _close(self, index: int) -> Part:
        part = self._parts.items[index]
        part["text"] = self._text_at(index)
        del self._pieces[index]
        return part

    def _whole(self, chunk: Chunk) -> Forward:
        kind = chunk["type"]
        self._parts.append({"type": kind, **{key: chunk[key] for key in _WHOLE[kind] if key in chunk}})
        return (chunk,)

    def _data(self, chunk: Chunk) -> Forward:
        if chunk.get("transient") is True:
            return (chunk,)
        index = self._parts.data(chunk["type"], chunk["id"]) if "id" in chunk else None
        if index is None:
            self._parts.append(dict(chunk))
        else:
            self._parts.items[index]["data"] = chunk["data"]
        return (chunk,)

    def _finish(self, chunk: Chunk) -> Forward:
        self._merge_metadata(chunk)
        self.finish_reason = str(chunk.get("finishReason", "stop"))
        return (chunk,)

    def _metadata(self, chunk: Chunk) -> Forward:
        self._merge_metadata(chunk)
        return (chunk,)

    def _merge_metadata(self, chunk: Chunk) -> None:
        new, old = chunk.get("messageMetadata"), self._head.get("metadata")
        if new is not None:
            self._head["metadata"] = new if old is None else merged(old, new)

    def _pass(self, chunk: Chunk) -> Forward:
        return (chunk,)


_ACTS: Mapping[str, Callable[[Fold, Chunk], Forward]] = {
    "start": Fold._start,
    "start-step": Fold._start_step,
    "finish-step": Fold._finish_step,
    "reset-step": Fold._reset_step,
    **{f"{kind}-start": Fold._open_text for kind in _KINDS},
    **{f"{kind}-delta": Fold._delta for kind in _KINDS},
    **{f"{kind}-end": Fold._end_text for kind in _KINDS},
    **dict.fromkeys(_WHOLE, Fold._whole),
    "finish": Fold._finish,
    "message-metadata": Fold._metadata,
    "abort": Fold._pass,
    "error": Fold._pass,
}
_DELTAS = {
    "text-delta": ("id", "delta"),
    "reasoning-delta": ("id", "delta"),
    "tool-input-delta": ("toolCallId", "inputTextDelta"),
}
_NOT_THERE = Effect((), Refusal(Why.UNFITTING))


def reduce(message: Message, chunk: Any) -> Reduction:
    """The stored message after one more chunk. Neither argument is changed; the result shares values with both."""
    fold = Fold.of(message)
    effect = fold.apply(chunk) if isinstance(chunk, dict) else Effect((), refusal_of(chunk))
    return Reduction(fold.stored(), effect.forward, effect.rejected)


def fold_all(message_id: str, stream: Iterable[Chunk]) -> Fold:
    """The fold of a whole stream."""
    fold = Fold(message_id)
    for item in stream:
        fold.apply(item)
    return fold


def _is_plain_delta(kind: object, chunk: Chunk) -> bool:
    """Whether the chunk is a well-formed delta and nothing else: most are, and need no further look."""
    if len(chunk) != 3 or not isinstance(kind, str) or (names := _DELTAS.get(kind)) is None:
        return False
    return isinstance(chunk.get(names[0]), str) and isinstance(chunk.get(names[1]), str)


def _carry_metadata(chunk: Chunk, part: Part) -> None:
    if "providerMetadata" in chunk:
        part["providerMetadata"] = chunk["providerMetadata"]


def _open_in(noted: Any, parts: list[Part]) -> Iterable[tuple[str, str, int]]:
    """The open ids that were noted, as far as there is such a part."""
    taken: set[int] = set()
    for kind in _KINDS:
        ids = noted.get(kind) if isinstance(noted, dict) else None
        for part_id, index in ids.items() if isinstance(ids, dict) else ():
            if isinstance(index, int) and 0 <= index < len(parts) and index not in taken:
                part = parts[index]
                if part.get("type") == kind and isinstance(part.get("text"), str):
                    taken.add(index)
                    yield kind, part_id, index
