"""Chunks become a message: one fold for live, replay and recovery.

Rules of this file: a fold never raises on what comes from outside and ignores what it does not know (the stream keeps
it); a delta goes to the part of its own id; splitting a delta changes nothing; the fold survives a JSON round trip
between any two chunks, so that a snapshot plus the tail equals the whole stream.
"""

from __future__ import annotations

import copy
from typing import Any

from runner.core.transcript.chunk import Chunk

Message = dict[str, Any]
Part = dict[str, Any]

_KINDS = ("text", "reasoning")


class Fold:
    """The message so far, and which of its parts are still open."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.started = False
        self.finished_steps = 0
        self.in_step = False
        self.finish_reason: str | None = None
        self.given_up = 0
        """The most characters that a dropped version of the unfinished step held."""
        self._parts: list[Part] = []
        self._metadata: Any = None
        self._open: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS}
        self._pieces: dict[int, list[str]] = {}

    def apply(self, chunk: Chunk) -> None:
        """Takes one chunk in. Anything that is not a known, well-formed chunk changes nothing."""
        kind = chunk.get("type")
        if not isinstance(kind, str):
            return
        match kind:
            case "text-delta" | "reasoning-delta":
                self._delta(kind[:-6], chunk)
            case "start":
                self._start(chunk)
            case "start-step":
                self.in_step = True
                self._parts.append({"type": "step-start"})
            case "finish-step":
                self.in_step = False
                self.finished_steps += 1
                self.given_up = 0
            case "reset-step":
                self._reset_step()
            case "text-start" | "reasoning-start":
                self._open_part(kind[:-6], chunk)
            case "text-end" | "reasoning-end":
                self._close_part(kind[:-4], chunk)
            case "file" | "reasoning-file" | "source-url" | "source-document" | "custom":
                self._parts.append(dict(chunk))
            case "finish":
                self.finish_reason = str(chunk.get("finishReason") or "stop")
                self._merge_metadata(chunk)
            case "message-metadata":
                self._merge_metadata(chunk)
            case _:
                self._data(chunk)

    def closing(self) -> list[Chunk]:
        """The chunks that end every part left open, oldest first: what a new owner writes before it goes on."""
        left = [(index, kind, part_id) for kind in _KINDS for part_id, index in self._open[kind].items()]
        return [{"type": f"{kind}-end", "id": part_id} for _, kind, part_id in sorted(left)]

    def text(self) -> str:
        """All text of the message, joined in order."""
        return "".join(self._text_at(i) for i, part in enumerate(self._parts) if part["type"] == "text")

    def step_text(self) -> str:
        """The text of the step that is under way."""
        begin = self._step_begin()
        return "".join(self._text_at(i) for i, p in enumerate(self._parts) if i >= begin and p["type"] == "text")

    def has_news(self) -> bool:
        """Whether the unfinished step holds more than any version of it that was dropped: what only comes again is no
        progress."""
        return not self.given_up or self._step_chars() > self.given_up

    def has_step_parts(self) -> bool:
        """Whether the step that is under way has any part yet."""
        return len(self._parts) > self._step_begin()

    def message(self) -> Message:
        """The message as a value of its own."""
        message: Message = {"id": self.message_id, "role": "assistant", "parts": []}
        if self._metadata is not None:
            message["metadata"] = copy.deepcopy(self._metadata)
        for index, part in enumerate(self._parts):
            value = copy.deepcopy(part)
            if index in self._pieces:
                value["text"] = self._text_at(index)
            message["parts"].append(value)
        return message

    def dump(self) -> dict[str, Any]:
        """The fold as JSON values: `Fold.load(fold.dump())` goes on exactly where this one is."""
        return {
            "v": 1,
            "message": self.message(),
            "open": copy.deepcopy(self._open),
            "started": self.started,
            "in_step": self.in_step,
            "finished_steps": self.finished_steps,
            "finish_reason": self.finish_reason,
            **({"given_up": self.given_up} if self.given_up else {}),
        }

    @classmethod
    def load(cls, dumped: dict[str, Any]) -> Fold:
        """The fold that `dump` wrote; `dumped` stays as it is."""
        message = dumped["message"]
        fold = cls(message["id"])
        fold._parts = [dict(part) for part in message["parts"]]
        fold._metadata = message.get("metadata")
        fold._open = {kind: dict(dumped["open"][kind]) for kind in _KINDS}
        fold.started = dumped["started"]
        fold.in_step = dumped["in_step"]
        fold.finished_steps = dumped["finished_steps"]
        fold.finish_reason = dumped["finish_reason"]
        fold.given_up = dumped.get("given_up", 0)
        for kind in _KINDS:
            fold._pieces.update({i: [fold._parts[i]["text"]] for i in fold._open[kind].values()})
        return fold

    def _start(self, chunk: Chunk) -> None:
        self.started = True
        if isinstance(chunk.get("messageId"), str):
            self.message_id = chunk["messageId"]
        self._merge_metadata(chunk)

    def _open_part(self, kind: str, chunk: Chunk) -> None:
        part_id = chunk.get("id")
        if not isinstance(part_id, str):
            return
        part: Part = {"type": kind, "text": "", "state": "streaming"}
        if kind == "reasoning":
            part["id"] = part_id
        _carry_metadata(chunk, part)
        self._open[kind][part_id] = len(self._parts)
        self._pieces[len(self._parts)] = []
        self._parts.append(part)

    def _delta(self, kind: str, chunk: Chunk) -> None:
        part_id, delta = chunk.get("id"), chunk.get("delta")
        if not isinstance(part_id, str) or not isinstance(delta, str):
            return
        index = self._open[kind].get(part_id)
        if index is None:
            return
        self._pieces[index].append(delta)
        if "providerMetadata" in chunk:
            _carry_metadata(chunk, self._parts[index])

    def _close_part(self, kind: str, chunk: Chunk) -> None:
        part_id = chunk.get("id")
        index = self._open[kind].pop(part_id, None) if isinstance(part_id, str) else None
        if index is None:
            return
        part = self._parts[index]
        part["text"] = self._text_at(index)
        part["state"] = "done"
        del self._pieces[index]
        _carry_metadata(chunk, part)

    def _text_at(self, index: int) -> str:
        pieces = self._pieces.get(index)
        if pieces is None:
            return str(self._parts[index]["text"])
        whole = _whole("".join(pieces))
        pieces[:] = [whole]
        return whole

    def _step_begin(self) -> int:
        starts = [i for i, part in enumerate(self._parts) if part["type"] == "step-start"]
        return starts[-1] + 1 if starts else 0

    def _step_chars(self) -> int:
        begin = self._step_begin()
        return sum(len(self._text_at(i)) for i, p in enumerate(self._parts) if i >= begin and p["type"] in _KINDS)

    def _reset_step(self) -> None:
        self.given_up = max(self.given_up, self._step_chars())
        begin = self._step_begin()
        del self._parts[begin:]
        for kind in _KINDS:
            self._open[kind] = {k: i for k, i in self._open[kind].items() if i < begin}
        self._pieces = {i: p for i, p in self._pieces.items() if i < begin}

    def _data(self, chunk: Chunk) -> None:
        if not chunk["type"].startswith("data-") or chunk.get("transient") is True:
            return
        data_id = chunk.get("id")
        if data_id is not None:
            for part in self._parts:
                if part["type"] == chunk["type"] and part.get("id") == data_id:
                    part["data"] = chunk.get("data")
                    return
        self._parts.append(dict(chunk))

    def _merge_metadata(self, chunk: Chunk) -> None:
        new = chunk.get("messageMetadata")
        if new is not None:
            self._metadata = _merged(self._metadata, new)


def fold_all(message_id: str, stream: list[Chunk]) -> Fold:
    """The fold of a whole stream."""
    fold = Fold(message_id)
    for item in stream:
        fold.apply(item)
    return fold


def _carry_metadata(chunk: Chunk, part: Part) -> None:
    if "providerMetadata" in chunk:
        part["providerMetadata"] = chunk["providerMetadata"]


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {
            **old,
            **{key: _merged(old.get(key), value) for key, value in new.items()},
        }
    return new


def _whole(text: str) -> str:
    """Joins the halves of a surrogate pair that came in two deltas."""
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
