"""The two executors: they run a `Call` over `redis.asyncio` or over `redis`, and know nothing of what it means.

Rules of this file: a call whose reply was lost is repeated only when it says that it may be; scripts are loaded when
the server does not know them; a refusal of the server is a typed error; nothing here decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import redis
import redis.asyncio

from runner.errors import ServerRefused, ServerUnreachable
from runner.store.call import Call, Script, script
from runner.store.connection import LOST, async_client, retry_delay_ms, sync_client, without_password

T = TypeVar("T")

FindScript = Callable[[str], Script]


class _Executor:
    """What both executors share: the address they speak of, their patience, and the texts of the acts."""

    def __init__(self, url: str, retries: int | None, find_script: FindScript) -> None:
        self.url = url
        self._retries = retries
        self._find_script = find_script

    def _words(self, call: Call[Any]) -> tuple[Any, ...]:
        return call.command(self._find_script(call.name).sha if call.is_act else "")

    def _give_up_or_delay(self, failures: int, why: BaseException, *, repeatable: bool) -> float:
        """Seconds to wait before the next try. Raises ServerUnreachable when there is none."""
        if isinstance(why, redis.AuthenticationError):
            raise ServerRefused("the connection", str(why)) from why
        if not repeatable or (self._retries is not None and failures > self._retries):
            raise ServerUnreachable(without_password(self.url), str(why) or type(why).__name__) from why
        return retry_delay_ms(failures) / 1_000

    def _unknown_acts(self, calls: Sequence[Call[Any]], raws: Sequence[Any]) -> list[str]:
        """The texts of acts that the server does not know, when the whole trip may be repeated. Repeating only those
        would change their order: a later append of the same run may have found its act loaded by somebody else."""
        if not all(call.repeatable for call in calls):
            return []
        refused = (
            c.name for c, raw in zip(calls, raws, strict=True) if isinstance(raw, redis.exceptions.NoScriptError)
        )
        return [self._find_script(name).text for name in dict.fromkeys(refused)]


class AsyncExecutor(_Executor):
    """Runs calls on one event loop. `retries=None` waits for the server as long as it takes."""

    def __init__(
        self,
        url: str,
        *,
        timeout_ms: int = 5_000,
        retries: int | None = 8,
        client: redis.asyncio.Redis | None = None,
        find_script: FindScript = script,
    ) -> None:
        super().__init__(url, retries, find_script)
        self.client = client or async_client(url, timeout_ms=timeout_ms)
        self._send: Callable[..., Awaitable[Any]] = self.client.execute_command

    async def run(self, call: Call[T]) -> T:
        """The parsed answer. Raises ServerUnreachable or ServerRefused."""
        failures, load_first = 0, False
        while True:
            try:
                if load_first:
                    await self.client.script_load(self._find_script(call.name).text)
                    load_first = False
                return call.parse(await self._send(*self._words(call)))
            except redis.exceptions.NoScriptError:
                load_first = True
            except LOST as why:
                failures += 1
                await asyncio.sleep(self._give_up_or_delay(failures, why, repeatable=call.repeatable))
            except redis.RedisError as why:
                raise ServerRefused(call.name, str(why)) from why

    async def run_many(self, calls: Sequence[Call[T]]) -> list[T]:
        """The answers of independent calls, sent in one pipeline. Raises as `run`."""
        failures = 0
        repeatable = all(call.repeatable for call in calls)
        while True:
            try:
                return await self._pipelined(calls)
            except LOST as why:
                failures += 1
                await asyncio.sleep(self._give_up_or_delay(failures, why, repeatable=repeatable))

    async def _pipelined(self, calls: Sequence[Call[T]]) -> list[T]:
        pipe = self.client.pipeline(transaction=False)
        for call in calls:
            pipe.execute_command(*self._words(call))
        raws = await pipe.execute(raise_on_error=False)
        unknown = self._unknown_acts(calls, raws)
        if unknown:
            await asyncio.gather(*(self.client.script_load(text) for text in unknown))
            return await self._pipelined(calls)
        return [
            call.parse(raw) if not isinstance(raw, Exception) else await self._second_try(call, raw)
            for call, raw in zip(calls, raws, strict=True)
        ]

    async def _second_try(self, call: Call[T], why: Exception) -> T:
        if isinstance(why, redis.exceptions.NoScriptError):
            return await self.run(call)
        if isinstance(why, LOST):
            raise why
        raise ServerRefused(call.name, str(why)) from why

    async def aclose(self) -> None:
        """Closes every connection."""
        await self.client.aclose()


class SyncExecutor(_Executor):
    """Runs calls from plain threads."""

    def __init__(
        self,
        url: str,
        *,
        timeout_ms: int = 5_000,
        retries: int | None = 8,
        client: redis.Redis | None = None,
        find_script: FindScript = script,
    ) -> None:
        super().__init__(url, retries, find_script)
        self.client = client or sync_client(url, timeout_ms=timeout_ms)
        self._send: Callable[..., Any] = self.client.execute_command

    def run(self, call: Call[T]) -> T:
        """The parsed answer. Raises ServerUnreachable or ServerRefused."""
        failures, load_first = 0, False
        while True:
            try:
                if load_first:
                    self.client.script_load(self._find_script(call.name).text)
                    load_first = False
                return call.parse(self._send(*self._words(call)))
            except redis.exceptions.NoScriptError:
                load_first = True
            except LOST as why:
                failures += 1
                time.sleep(self._give_up_or_delay(failures, why, repeatable=call.repeatable))
            except redis.RedisError as why:
                raise ServerRefused(call.name, str(why)) from why

    def run_many(self, calls: Sequence[Call[T]]) -> list[T]:
        """The answers of independent calls, sent in one pipeline. Raises as `run`."""
        failures = 0
        repeatable = all(call.repeatable for call in calls)
        while True:
            try:
                return self._pipelined(calls)
            except LOST as why:
                failures += 1
                time.sleep(self._give_up_or_delay(failures, why, repeatable=repeatable))

    def _pipelined(self, calls: Sequence[Call[T]]) -> list[T]:
        pipe = self.client.pipeline(transaction=False)
        for call in calls:
            pipe.execute_command(*self._words(call))
        raws = pipe.execute(raise_on_error=False)
        unknown = self._unknown_acts(calls, raws)
        if unknown:
            for text in unknown:
                self.client.script_load(text)
            return self._pipelined(calls)
        return [
            call.parse(raw) if not isinstance(raw, Exception) else self._second_try(call, raw)
            for call, raw in zip(calls, raws, strict=True)
        ]

    def _second_try(self, call: Call[T], why: Exception) -> T:
        if isinstance(why, redis.exceptions.NoScriptError):
            return self.run(call)
        if isinstance(why, LOST):
            raise why
        raise ServerRefused(call.name, str(why)) from why

    def close(self) -> None:
        """Closes every connection."""
        self.client.close()
