"""A model that follows a script: for tests, demos and machines without a provider.

Rules of this file: the same request gives the same answer. A request that ends in a partial answer gets exactly the
rest, wherever it was cut, so a script survives any crash of the process that plays it. Nothing is remembered between
requests except how often a step limited by `times` has struck.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, TypeAlias

from runner.core.turn.round import Chunk, Message, RoundEnd, RoundRequest
from runner.core.turn.round import Finish as FinishReason
from runner.errors import ModelError, ModelRejected

_WORD = re.compile(r"\s*\S+|\s+\Z")


@dataclass(frozen=True, slots=True)
class Say:
    """One text part, given out `words_per_delta` words at a time. With `continue_partial`, what the partial answer
    already holds is skipped. `close=False` leaves the part open, for a failure in the middle of a text."""

    text: str
    words_per_delta: int = 1
    continue_partial: bool = True
    close: bool = True


@dataclass(frozen=True, slots=True)
class Think:
    """One reasoning part; otherwise as `Say`."""

    text: str
    words_per_delta: int = 1
    continue_partial: bool = True
    close: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """Waits that many milliseconds."""

    ms: int


@dataclass(frozen=True, eq=False, slots=True)
class Silence:
    """Gives nothing more until the call is cancelled. Strikes the first `times` requests only; None is every one."""

    times: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Fail:
    """Raises `error`. Strikes the first `times` requests only; None is every one."""

    error: ModelError
    times: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """Ends the stream without a `RoundEnd`. Strikes the first `times` requests only; None is every one."""

    times: int | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Ends the answer; the fields are those of `RoundEnd`. Left None, `raw_finish` and `capped` follow `finish`."""

    finish: FinishReason = "stop"
    raw_finish: str | None = None
    complete: bool = True
    capped: bool | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def round_end(self) -> RoundEnd:
        return RoundEnd(
            finish=self.finish,
            raw_finish=(self.raw_finish or self.finish) if self.complete else self.raw_finish,
            complete=self.complete,
            capped=self.finish == "length" if self.capped is None else self.capped,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
        )


Hook: TypeAlias = Callable[[], Awaitable[object] | object]
Step: TypeAlias = Chunk | Say | Think | Pause | Silence | Fail | Cut | Finish | Hook
Script: TypeAlias = Sequence[Step]


class ScriptedModel:
    """Plays `script` for every request, or `rounds[n]` for the n-th round of the turn, or the script that a function
    makes of the request.

    A step is one of the classes above, a chunk to give out as it is, or a function without arguments, which is called
    and awaited where it stands: `[Say("a"), reached.set, go.wait, Say("b")]` with two `asyncio.Event`s stops a test
    exactly there. A script without a `Finish` or `Cut` at its end finishes with "stop". `pace_ms` is the wait before
    each delta of a `Say` or `Think`. Raises the errors of `Fail`, and ModelRejected in a round that has no script.
    """

    def __init__(
        self,
        script: Script | Callable[[RoundRequest], Script] = (),
        *,
        rounds: Sequence[Script] = (),
        pace_ms: int = 0,
        continues_partial: bool = True,
    ) -> None:
        self._script, self._rounds, self._pace_s = script, tuple(rounds), pace_ms / 1000
        self._strikes: dict[Silence | Fail | Cut, int] = {}
        self.continues_partial = continues_partial

    async def stream(self, request: RoundRequest) -> AsyncGenerator[Chunk | RoundEnd, None]:
        """Chunks of the parts of one answer, then one `RoundEnd`."""
        play = _Play(request.round_id, _Partial(request.messages if self.continues_partial else ()))
        for step in self._steps(request):
            match step:
                case Say() | Think():
                    async for chunk in self._paced(play.part(step)):
                        yield chunk
                case Finish():
                    yield step.round_end()
                    return
                case Cut() if self._strikes_now(step):
                    return
                case dict():
                    yield copy.deepcopy(step)
                case _:
                    await self._act(step)
        yield Finish().round_end()

    def _steps(self, request: RoundRequest) -> Script:
        if callable(self._script):
            return self._script(request)
        if not self._rounds:
            return self._script
        number = round_number(request.messages)
        if number >= len(self._rounds):
            raise ModelRejected(f"the script has {len(self._rounds)} rounds, this is number {number + 1}; add one")
        return self._rounds[number]

    async def _act(self, step: Pause | Silence | Fail | Cut | Hook) -> None:
        match step:
            case Pause(ms=ms):
                await asyncio.sleep(ms / 1000)
            case Silence() if self._strikes_now(step):
                await asyncio.Event().wait()
            case Fail(error=error) if self._strikes_now(step):
                raise copy.copy(error)
            case Silence() | Fail() | Cut():
                pass
            case _:
                outcome = step()
                if isawaitable(outcome):
                    await outcome

    async def _paced(self, chunks: Iterator[Chunk]) -> AsyncIterator[Chunk]:
        for chunk in chunks:
            if "delta" in chunk:
                # Also without a pace: a long script must let the rest of the process run.
                await asyncio.sleep(self._pace_s)
            yield chunk

    def _strikes_now(self, step: Silence | Fail | Cut) -> bool:
        struck = self._strikes.get(step, 0)
        self._strikes[step] = struck + 1
        return step.times is None or struck < step.times


def round_number(messages: Sequence[Message]) -> int:
    """Which round of the turn is asked for, from 0: a round follows each step of the answer that called tools."""
    if not messages or messages[-1].get("role") != "assistant":
        return 0
    return sum(any("toolCallId" in part for part in step) for step in _answer_steps(messages))


def _answer_steps(messages: Sequence[Message]) -> list[list[dict[str, Any]]]:
    steps: list[list[dict[str, Any]]] = [[]]
    for part in messages[-1].get("parts", ()):
        if part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    return steps


class _Partial:
    """What the partial answer already holds of this round, as text of each kind."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._held = {"text": "", "reasoning": ""}
        if messages and messages[-1].get("role") == "assistant":
            for step in _answer_steps(messages):
                self._read(step)

    def rest_of(self, kind: Literal["text", "reasoning"], text: str) -> str:
        """What of `text` is still to be given out. A partial that does not come from this script is not skipped."""
        held = self._held[kind]
        if held.startswith(text):
            self._held[kind] = held[len(text) :]
            return ""
        self._held[kind] = ""
        return text.removeprefix(held)

    def _read(self, step: list[dict[str, Any]]) -> None:
        if any("toolCallId" in part for part in step):
            self._held = {"text": "", "reasoning": ""}
            return
        for part in step:
            if (kind := part.get("type")) in self._held:
                self._held[kind] += part.get("text", "")


class _Play:
    """The parts of one answer, numbered."""

    def __init__(self, round_id: str, partial: _Partial) -> None:
        self._round_id, self._partial, self._parts = round_id, partial, 0

    def part(self, step: Say | Think) -> Iterator[Chunk]:
        kind: Literal["text", "reasoning"] = "text" if isinstance(step, Say) else "reasoning"
        text = self._partial.rest_of(kind, step.text) if step.continue_partial else step.text
        if not text:
            return
        part_id = f"{self._round_id}:{self._parts}"
        self._parts += 1
        yield {"type": f"{kind}-start", "id": part_id}
        for delta in deltas(text, step.words_per_delta):
            yield {"type": f"{kind}-delta", "id": part_id, "delta": delta}
        if step.close:
            yield {"type": f"{kind}-end", "id": part_id}


def deltas(text: str, words: int) -> Iterator[str]:
    """`text` in pieces of `words` words, each with the white space before it; joined they are `text`."""
    found = _WORD.findall(text)
    for first in range(0, len(found), words):
        yield "".join(found[first : first + words])
