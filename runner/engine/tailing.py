"""Tails: any number of readers of any number of runs over one blocking connection per process.

Rules of this file: a reader's place is a seq that only moves to what it was given; a start is resolved once, to a seq,
never to "now"; a slow reader keeps a bounded queue and then re-reads from its place; what ends a tail is the terminal
entry, which is durable, so a lost signal loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from runner.core.transcript.chunk import Chunk
from runner.engine.rebuild import PAGE_ENTRIES, pages
from runner.engine.stopping import stop
from runner.errors import InvalidCursor, RunNotFound
from runner.settings import Settings
from runner.store import reads
from runner.store.answers import Entry
from runner.store.blocking import LOST, BlockingReader
from runner.store.call import Call
from runner.store.connection import retry_delay_ms
from runner.store.executor import AsyncExecutor
from runner.store.keys import Keys, RunKeys
from runner.store.records import Terminal
from runner.telemetry import log

_log = log("tailing")

UNBLOCK_EVERY_S = 0.002


@dataclass(frozen=True, slots=True)
class TailItem:
    """A chunk with its seq and the epoch that wrote it; or, last, the terminal (then `chunk` is None)."""

    seq: int
    epoch: int
    chunk: Chunk | None
    terminal: Terminal | None = None


@dataclass(slots=True)
class _Reader:
    """One tail's queue of entries that it has not taken yet."""

    limit: int
    entries: deque[Entry] = field(default_factory=deque)
    overflowed: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def give(self, entries: list[Entry]) -> None:
        if len(self.entries) + len(entries) > self.limit:
            self.entries.clear()
            self.overflowed = True
        else:
            self.entries.extend(entries)
        self.news.set()


@dataclass(slots=True)
class _Watch:
    """A stream that the hub follows, and who reads it."""

    cursor: int
    readers: list[_Reader] = field(default_factory=list)
    ended: bool = False
    """The terminal was delivered: there is nothing more to wait for."""

    def look(self) -> None:
        """Makes every reader look into the stream itself."""
        for reader in self.readers:
            reader.overflowed = True
            reader.news.set()


class TailHub:
    """Follows every tailed stream of a process with one blocking read, and hands entries to the readers."""

    def __init__(self, store: AsyncExecutor, keys: Keys, settings: Settings) -> None:
        self._store, self._keys, self._settings = store, keys, settings
        self._patient = AsyncExecutor(store.url, retries=None, client=store.client)
        self._watches: dict[str, _Watch] = {}
        self._reader = BlockingReader(
            store.url, block_ms=settings.tail_block_ms, timeout_ms=settings.command_timeout_ms
        )
        self._following: asyncio.Task[None] | None = None
        self._nudge: asyncio.Task[None] | None = None
        self._changed = False
        self._any = asyncio.Event()

    async def tail(self, run_id: str, *, after: int = 0) -> AsyncIterator[TailItem]:
        """Every chunk behind the seq `after`, live, ending with the terminal. Once it has begun, a tail waits for a
        lost server as long as it takes.

        Raises RunNotFound, InvalidCursor (a seq the run has not reached), or, before it has begun, a ServerError.
        """
        run = self._keys.of_run(run_id)
        record = await self._store.run(reads.read_run(run))
        if record is None:
            raise RunNotFound(run_id)
        if isinstance(after, bool) or after < 0 or after > record.seq:
            raise InvalidCursor(after, record.seq)
        async for entry in self._entries(run, after):
            first = entry.last_seq - len(entry.chunks) + 1
            for offset, chunk in enumerate(entry.chunks):
                if first + offset > after:
                    yield TailItem(first + offset, entry.epoch, chunk)
            if entry.terminal is not None:
                yield TailItem(entry.last_seq, entry.epoch, None, entry.terminal)

    async def aclose(self) -> None:
        """Ends the following. Tails that still run go on by looking into their streams, until they are left."""
        await stop(self._following)
        await stop(self._nudge)
        await self._reader.aclose()

    async def _entries(self, run: RunKeys, after: int) -> AsyncIterator[Entry]:
        cursor = after
        async for entry in pages(self._patient, run, after=cursor):
            cursor = entry.last_seq
            yield entry
            if entry.terminal is not None:
                return
        reader = self._join(run, cursor)
        try:
            watch = self._watches[run.stream]
            behind = watch.ended or watch.cursor > cursor
            while True:
                if behind:
                    async for entry in pages(self._patient, run, after=cursor):
                        cursor = entry.last_seq
                        yield entry
                        if entry.terminal is not None:
                            return
                behind = not await self._news(run, reader, cursor)
                while reader.entries and not behind:
                    entry = reader.entries.popleft()
                    if entry.terminal is None and entry.last_seq <= cursor:
                        continue
                    if behind := not _follows(entry, cursor):
                        break
                    cursor = entry.last_seq
                    yield entry
                    if entry.terminal is not None:
                        return
        finally:
            self._leave(run, reader)

    async def _news(self, run: RunKeys, reader: _Reader, cursor: int) -> bool:
        """Waits for entries. False when the reader must look into the stream itself: it was too slow, or nothing came
        for so long that the durable state is asked. Raises RunNotFound when the run's keys are gone."""
        try:
            async with asyncio.timeout(self._settings.tail_block_ms / 1_000):
                await reader.news.wait()
        except TimeoutError:
            record = await self._patient.run(reads.read_run(run))
            if record is None:
                raise RunNotFound(run.run_id) from None
            if record.seq < cursor:  # the server lost what it had acknowledged: what follows is another stream
                raise InvalidCursor(cursor, record.seq) from None
            return False
        reader.news.clear()
        overflowed, reader.overflowed = reader.overflowed, False
        return not overflowed

    def _join(self, run: RunKeys, cursor: int) -> _Reader:
        reader = _Reader(self._settings.tail_buffer_entries)
        watch = self._watches.get(run.stream)
        if watch is None:
            watch = self._watches[run.stream] = _Watch(cursor)
            self._watches_changed()
        watch.readers.append(reader)
        return reader

    def _leave(self, run: RunKeys, reader: _Reader) -> None:
        watch = self._watches[run.stream]
        watch.readers.remove(reader)
        if not watch.readers:
            del self._watches[run.stream]

    def _watches_changed(self) -> None:
        self._changed = True
        self._any.set()
        loop = asyncio.get_running_loop()
        if self._following is None or self._following.done():
            self._following = loop.create_task(self._follow())
        if self._nudge is None or self._nudge.done():
            self._nudge = loop.create_task(self._unblock())

    async def _unblock(self) -> None:
        """Makes the blocked read return, so that it starts again with the streams that were added."""
        while self._changed:
            if self._reader.client_id:
                await self._patient.run(Call("CLIENT", int, ("UNBLOCK", self._reader.client_id), is_act=False))
            await asyncio.sleep(UNBLOCK_EVERY_S)

    async def _follow(self) -> None:
        failures = 0
        while True:
            self._changed = False
            cursors = {name: watch.cursor for name, watch in self._watches.items() if not watch.ended}
            if not cursors:
                self._any.clear()
                await self._any.wait()
                continue
            try:
                news = await self._reader.read(cursors, count=PAGE_ENTRIES)
            except LOST:
                failures += 1
                await asyncio.sleep(retry_delay_ms(failures) / 1_000)
                continue
            except Exception:  # noqa: BLE001 - one bad entry must not take live following from all the others
                _log.exception("tail.broke")
                failures += 1
                for watch in self._watches.values():
                    watch.look()
                await asyncio.sleep(retry_delay_ms(failures) / 1_000)
                continue
            failures = 0
            for name, entries in news.items():
                self._deliver(name, entries)

    def _deliver(self, name: str, entries: list[Entry]) -> None:
        watch = self._watches.get(name)
        if watch is None:
            return
        watch.cursor = entries[-1].last_seq
        watch.ended = entries[-1].terminal is not None
        for reader in watch.readers:
            reader.give(entries)


def _follows(entry: Entry, cursor: int) -> bool:
    """Whether nothing lies between the cursor and this entry: a queue that overflowed has lost what came before it."""
    return entry.last_seq - len(entry.chunks) <= cursor
