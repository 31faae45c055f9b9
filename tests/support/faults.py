"""The network of one simulated process: every call is numbered, and at a chosen one something goes wrong.

Rules of this file: it stands where the client library would, below the product's executors, and knows calls only as
words; what it breaks, it breaks as a network or a killed process would; after its death a process sends nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import fakeredis
import redis

from runner.dispatch import Dispatcher, Ticket
from runner.errors import ServerUnreachable
from runner.store.call import script_names
from runner.store.executor import SyncExecutor
from tests.support.store import script_on_manual_clock
from tests.support.virtual_time import Stalled

Words = tuple[Any, ...]
Hook = Callable[[], Awaitable[object]]
Send = Callable[[Sequence[Words]], Awaitable[list[Any]]]
Observe = Callable[[Sequence[Words], Sequence[Any]], None]

_NAMES = {script_on_manual_clock(name).sha: name for name in script_names()}


class Fault(Enum):
    """What befalls one call. HALFWAY: of a trip with many calls the server gets the first half."""

    DIE_BEFORE = "dies before the call"
    DIE_HALFWAY = "dies while the call is sent"
    DIE_AFTER = "dies after the call, before its reply"
    LOSE_REQUEST = "connection lost before the call"
    LOSE_HALFWAY = "connection lost while the call is sent"
    LOSE_REPLY = "connection lost after the call"
    STALL_BEFORE = "stalls before the call"
    STALL_AFTER = "stalls after the call"


DEATHS = (Fault.DIE_BEFORE, Fault.DIE_HALFWAY, Fault.DIE_AFTER)
LOSSES = (Fault.LOSE_REQUEST, Fault.LOSE_HALFWAY, Fault.LOSE_REPLY)
STALLS = (Fault.STALL_BEFORE, Fault.STALL_AFTER)
_BEFORE = (Fault.DIE_BEFORE, Fault.LOSE_REQUEST, Fault.STALL_BEFORE)
_HALFWAY = (Fault.DIE_HALFWAY, Fault.LOSE_HALFWAY)


class ProcessDied(BaseException):
    """The process is gone. No code of the product catches this."""


@dataclass
class Plan:
    """What happens at which call of a process, numbered from 1. A hook runs before its call is sent."""

    faults: dict[int, Fault] = field(default_factory=dict)
    hooks: dict[int, Hook] = field(default_factory=dict)


@dataclass(frozen=True)
class Answered:
    """One act and the first number of its answer (its code, for nearly all acts)."""

    process: str
    act: str
    code: int | None


class Line:
    """One process's way to the servers. `tick` is called before anything reaches one, `observe` after every trip."""

    def __init__(self, name: str, plan: Plan | None, tick: Callable[[], None], observe: Observe) -> None:
        self.name, self.plan, self._tick, self._observe = name, plan or Plan(), tick, observe
        self.calls = 0
        self.log: list[str] = []
        self.answers: list[Answered] = []
        self.hits: Counter[Fault] = Counter()
        self.died, self.stalled, self.awake = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.awake.set()
        self.dead = False

    async def trip(self, words: Sequence[Words], send: Send) -> list[Any]:
        """Sends some calls together; raises what their sender would see."""
        fault = await self._next("+".join(dict.fromkeys(named(call) for call in words)))
        if fault in _BEFORE:
            await self._suffer(fault)
        elif fault in _HALFWAY and len(words) > 1:
            await self._send(words[: len(words) // 2], send)
            await self._suffer(fault)
        raws = await self._send(words, send)
        if fault in (Fault.DIE_AFTER, Fault.LOSE_REPLY, Fault.STALL_AFTER):
            await self._suffer(fault)
        return raws

    @contextmanager
    def blocking(self, name: str) -> Iterator[None]:
        """Around a call of a plain thread, which cannot be sent by halves."""
        if self.dead:
            raise ProcessDied
        if not self.awake.is_set():
            raise Stalled(self.awake)
        self._count(name)
        fault = self.plan.faults.get(self.calls)
        if fault in _BEFORE:
            self._suffer_now(fault)
        try:
            self._tick()
        except redis.ConnectionError as why:
            raise ServerUnreachable("the broker", str(why)) from why
        yield
        if fault is Fault.STALL_AFTER:
            self.hits[fault] += 1
            self.stall()  # its next call finds it stalled
        elif fault in (Fault.DIE_AFTER, Fault.LOSE_REPLY):
            self._suffer_now(fault)

    def wake(self) -> None:
        """Ends a stall."""
        self.awake.set()

    async def _next(self, name: str) -> Fault | None:
        await self._fit()
        self._count(name)
        hook = self.plan.hooks.get(self.calls)
        if hook is not None:
            number = self.calls
            await hook()
            await self._fit()
            return self.plan.faults.get(number)
        return self.plan.faults.get(self.calls)

    async def _fit(self) -> None:
        if self.dead:
            raise ProcessDied
        await self.awake.wait()

    def _count(self, name: str) -> None:
        self.calls += 1
        self.log.append(name)

    async def _send(self, words: Sequence[Words], send: Send) -> list[Any]:
        self._tick()
        raws = await send(words)
        for call, raw in zip(words, raws, strict=True):
            code = raw[0] if isinstance(raw, list) and raw and isinstance(raw[0], int) else None
            self.answers.append(Answered(self.name, named(call), code))
        self._observe(words, raws)
        return raws

    async def _suffer(self, fault: Fault) -> None:
        self.hits[fault] += 1
        if fault in DEATHS:
            self.die()
            await asyncio.Event().wait()  # killed: this process never gets any further
        if fault in STALLS:
            self.stall()
            await self.awake.wait()
            return
        raise redis.ConnectionError("lost by the test")

    def _suffer_now(self, fault: Fault) -> None:
        self.hits[fault] += 1
        if fault in DEATHS:
            self.die()
            raise ProcessDied
        if fault in STALLS:
            self.stall()
            del self.plan.faults[self.calls]
            raise Stalled(self.awake)
        raise ServerUnreachable("the broker", "lost by the test")

    def die(self) -> None:
        """From now on the process sends nothing."""
        self.dead = True
        self.died.set()

    def stall(self) -> None:
        """Whatever the process sends from now on waits until it wakes."""
        self.awake.clear()
        self.stalled.set()


class FaultyClient:
    """What an AsyncExecutor needs of a client, over one line to a fake server."""

    def __init__(self, line: Line, real: fakeredis.FakeAsyncRedis, shortcut: Callable[[Words], Any]) -> None:
        self._line, self._real, self._shortcut = line, real, shortcut

    async def execute_command(self, *words: Any) -> Any:
        raws = await self._line.trip([words], self._send)
        if isinstance(raws[0], Exception):
            raise raws[0]
        return raws[0]

    def pipeline(self, transaction: bool) -> FaultyPipe:
        assert not transaction, "independent calls share a trip, not a transaction"
        return FaultyPipe(self._line, self._send)

    async def script_load(self, text: str) -> Any:
        raise AssertionError("every act is known to the simulated server from the start")

    async def _send(self, words: Sequence[Words]) -> list[Any]:
        answers = [self._shortcut(call) for call in words]
        asked = [number for number, answer in enumerate(answers) if answer is None]
        if asked:
            pipe = self._real.pipeline(transaction=False)
            for number in asked:
                pipe.execute_command(*words[number])
            for number, raw in zip(asked, await pipe.execute(raise_on_error=False), strict=True):
                answers[number] = raw
        return answers


class FaultyPipe:
    """Calls that share a trip."""

    def __init__(self, line: Line, send: Send) -> None:
        self._line, self._send = line, send
        self._words: list[Words] = []

    def execute_command(self, *words: Any) -> None:
        self._words.append(words)

    async def execute(self, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        return await self._line.trip(self._words, self._send)


class FaultyDispatcher(Dispatcher):
    """The product's dispatcher, whose way to the broker is a line."""

    def __init__(self, client: redis.Redis, queue: str, line: Line) -> None:
        super().__init__(client, queue)
        self._line = line

    def enqueue(self, tickets: Sequence[Ticket], *, at_front: bool = False) -> None:
        with self._line.blocking("enqueue"):
            super().enqueue(tickets, at_front=at_front)

    def lost(self, tickets: Any) -> list[Ticket]:
        with self._line.blocking("lost"):
            return super().lost(tickets)


class FaultyBeats(SyncExecutor):
    """The product's executor for threads, on a line. A lost beat is not repeated here: the next one comes soon."""

    def __init__(self, url: str, line: Line, client: redis.Redis) -> None:
        super().__init__(url, client=client, find_script=script_on_manual_clock)
        self._line = line

    def run_many(self, calls: Any) -> Any:
        with self._line.blocking("beat"):
            return super().run_many(calls)


def named(words: Words) -> str:
    """The act or command that these words are."""
    return _NAMES[words[1]] if words[0] == "EVALSHA" else str(words[0])
