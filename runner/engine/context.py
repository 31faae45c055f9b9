"""What a running turn is given: emit, say, step, stash, over the writer and the ledger.

Rules of this file: every emit is a boundary where the turn may be stopped; a milestone is stored before the turn goes
on; what a step returned is stored before anybody sees it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from runner.core.progress import is_credited, is_milestone
from runner.core.transcript import chunk as chunks
from runner.core.transcript.chunk import Chunk
from runner.core.transcript.reducer import Fold, Message
from runner.engine.hosting import HostedTurn
from runner.engine.runtime import Runtime
from runner.engine.writer import RunWriter
from runner.errors import AttemptLost, InvalidInput, StreamGap, TooLarge
from runner.store import calls
from runner.store.answers import Code
from runner.store.records import RunRecord, Snapshot

T = TypeVar("T")

STASH = "stash"
_STEP = "step:"
_HISTORY = "history"
HISTORY_ROOM = 4
"""A repaired history may be this many times the size of a submission."""


class Context:
    """The engine's TurnContext."""

    def __init__(
        self, runtime: Runtime, turn: HostedTurn, record: RunRecord, fold: Fold, ledger: dict[str, bytes]
    ) -> None:
        request = record.request
        self.run_id, self.attempt = record.run_id, record.attempts
        self.input: Any = request.get("input")
        self.message: str | None = request.get("message")
        self.messages: list[Message] = request.get("messages") or []
        self.fold = fold
        self.writer = RunWriter(runtime.pipe, turn.run, turn.epoch, record.seq, turn.refused)
        self._runtime, self._turn, self._ledger = runtime, turn, ledger
        self._text_id: str | None = None
        self._texts = 0

    @property
    def text(self) -> str:
        """All text given out so far, earlier attempts included."""
        return self.fold.text()

    @property
    def partial(self) -> Message:
        """The assistant message so far."""
        return self.fold.message()

    @property
    def epoch(self) -> int:
        """The fencing number of this attempt."""
        return self._turn.epoch

    @property
    def stashed(self) -> Any:
        """What was stashed last; None when nothing was."""
        return json.loads(self._ledger[STASH]) if STASH in self._ledger else None

    async def begin(self) -> None:
        """Opens the message and a step, or closes what the last attempt left open."""
        for chunk in self.fold.closing():
            await self._append(chunk)
        if not self.fold.started:
            await self._append(chunks.start(self.fold.message_id))
        if not self.fold.in_step and not self.fold.finished_steps:
            await self._append(chunks.start_step())

    async def emit(self, chunk: Chunk) -> int:
        """Appends one chunk; returns its seq."""
        await self._turn.at_boundary()
        return await self._append(checked_chunk(chunk))

    async def say(self, delta: str) -> int:
        """Appends text to the open text part, opening one when there is none; returns the seq."""
        await self._turn.at_boundary()
        if self._text_id is None:
            self._texts += 1
            self._text_id = f"t{self.epoch}-{self._texts}"
            await self._append({"type": "text-start", "id": self._text_id})
        return await self._append({"type": "text-delta", "id": self._text_id, "delta": delta})

    async def step(self, name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """The JSON result of `fn`, run once per run; read back on every later attempt."""
        await self._turn.at_boundary()
        field = _STEP + name
        if field not in self._ledger:
            value = await _call(fn)
            self._ledger[field] = await self._remember(field, self._as_json(f"result of step {name!r}", value), "first")
        return cast("T", json.loads(self._ledger[field]))

    async def stash(self, value: Any) -> None:
        """Keeps one JSON value for the next attempt; the last one wins."""
        self._ledger[STASH] = await self._remember(STASH, self._as_json("stash", value), "last")

    def recalled_history(self) -> list[Message] | None:
        """The repaired history that an earlier attempt stored; None when none did."""
        return json.loads(self._ledger[_HISTORY]) if _HISTORY in self._ledger else None

    async def store_history(self, messages: list[Message]) -> None:
        """Keeps the repaired history for this run."""
        # Repair adds to what was within the limit when it was submitted: room for one result per call is left.
        limit = self._runtime.settings.input_bytes * HISTORY_ROOM
        encoded = _to_json("history", messages, limit, "RUNNER_INPUT_BYTES")
        self._ledger[_HISTORY] = await self._remember(_HISTORY, encoded, "last")

    async def flush(self) -> None:
        """Returns when everything emitted so far is durable."""
        await self.writer.flush()

    async def reset_step(self) -> None:
        """Drops the unfinished step's parts, on every reader: the step is done anew."""
        self._text_id = None
        await self._append(chunks.reset_step())

    async def end_step(self) -> None:
        """Closes the step, makes it durable, and stores the message so far."""
        await self.close_parts()
        await self._append(chunks.finish_step())
        await self.flush()
        snapshot = Snapshot(seq=self.writer.last_seq, fold=self.fold.dump())
        code = await self._runtime.store.run(calls.save_snapshot(self._turn.run, self.epoch, snapshot))
        if code is Code.GAP:
            raise StreamGap(self.run_id, snapshot.seq, 0)
        self._turn.answered(code)
        await self._turn.at_boundary()

    async def close_parts(self) -> None:
        """Ends every part that is open."""
        self._text_id = None
        for chunk in self.fold.closing():
            await self._append(chunk)

    async def _append(self, chunk: Chunk) -> int:
        kind = chunk["type"]
        try:
            encoded = chunks.encode(chunk)
        except ValueError as why:
            raise InvalidInput(f"a {kind} chunk is no JSON: {why}") from None
        limit = self._runtime.settings.chunk_bytes
        if len(encoded) > limit:
            raise TooLarge(f"a {kind} chunk", len(encoded), limit, "RUNNER_CHUNK_BYTES")
        self.fold.apply(_as_stored(chunk, encoded))
        seq = await self.writer.append(encoded, credited=is_credited(kind) and self.fold.has_news())
        if is_milestone(kind):
            await self.writer.flush()
        return seq

    def _as_json(self, what: str, value: Any) -> bytes:
        return _to_json(what, value, self._runtime.settings.memo_bytes, "RUNNER_MEMO_BYTES")

    async def _remember(self, field: str, value: bytes, keep: str) -> bytes:
        code, stored = await self._runtime.store.run(
            calls.remember(self._turn.run, self.epoch, field, value, keep=keep)
        )
        self._turn.answered(code)
        if code is not Code.OK:
            raise AttemptLost(self.run_id, self.epoch, code.name.lower())
        return stored


def _to_json(what: str, value: Any, limit: int, option: str) -> bytes:
    try:
        encoded = chunks.to_bytes(value)
    except ValueError as why:
        raise InvalidInput(f"the {what} is no JSON: {why}") from None
    if len(encoded) > limit:
        raise TooLarge(f"the {what}", len(encoded), limit, option)
    return encoded


def _as_stored(chunk: Chunk, encoded: bytes) -> Chunk:
    """The chunk as every reader will see it, in a copy that its author cannot change any more."""
    if all(isinstance(value, str) for value in chunk.values()):
        return chunk
    stored: Chunk = json.loads(encoded)
    return stored


def checked_chunk(value: Any) -> Chunk:
    """`value` if it can be a chunk; InvalidInput otherwise."""
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        return value
    raise InvalidInput("a chunk is a JSON object with a text `type`, like {'type': 'data-note', 'data': ..}")


async def _call(fn: Callable[[], T | Awaitable[T]]) -> T:
    """Calls an author's function: a coroutine function here, anything else in a thread."""
    result = fn() if inspect.iscoroutinefunction(fn) else await asyncio.to_thread(fn)
    return cast("T", await result if inspect.isawaitable(result) else result)
