"""Tails on a real server: every reader gets every chunk once, in order, whenever it joins and however slow it is.

Nothing here waits for the hub to ask again by itself: that interval is a minute, so what arrives was delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from runner import ids
from runner.core.run import Ending, Reason, State
from runner.engine.tailing import TailHub, TailItem
from runner.errors import InvalidCursor, InvalidInput, RunNotFound
from runner.settings import load_settings
from runner.store import calls
from runner.store.executor import AsyncExecutor
from runner.store.keys import RunKeys
from tests.support.store import OTHER_RUN_ID, RUN_ID, Store, batch, claimed
from tests.support.waiting import until_async

DONE = Ending(State.COMPLETED, Reason.FINISHED)
PATIENCE_MS = 60_000


class Tails:
    """One hub of one process, and the readers a test has started on it."""

    def __init__(self, store: Store, **settings: int) -> None:
        self.store = store
        made = load_settings(**{"redis_url": store.url, "tail_block_ms": PATIENCE_MS, **settings})
        self.executor = AsyncExecutor(store.url)
        self.hub = TailHub(self.executor, store.keys, made)
        self.tasks: list[asyncio.Task[list[TailItem]]] = []

    def read(self, run_id: str = RUN_ID, after: int = 0) -> asyncio.Task[list[TailItem]]:
        """A reader that takes everything as it comes."""
        task = asyncio.create_task(self._read(run_id, after))
        self.tasks.append(task)
        return task

    async def joined(self, readers: int) -> None:
        """Returns when that many readers wait for news."""
        watches = self.hub._watches

        async def there() -> bool:
            return sum(len(watch.readers) for watch in watches.values()) == readers

        await until_async(there, what=f"{readers} readers")

    async def aclose(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.hub.aclose()
        await self.executor.aclose()

    async def _read(self, run_id: str, after: int) -> list[TailItem]:
        return [item async for item in self.hub.tail(run_id, after=after)]


def with_tails(store: Store, program: Callable[[Tails], Awaitable[None]], **settings: int) -> None:
    async def main() -> None:
        tails = Tails(store, **settings)
        try:
            async with asyncio.timeout(30):
                await program(tails)
        finally:
            await tails.aclose()

    asyncio.run(main())


def write(store: Store, run: RunKeys, first: int, *texts: str) -> None:
    """Appends one batch."""
    assert store.run(calls.append(run, 1, batch(first, *texts))).seq == first + len(texts) - 1


def end(store: Store, run: RunKeys) -> None:
    """Ends the run, with nothing more to say."""
    owner = store.record(run).owner
    store.run(calls.finish(run, 1, DONE, by="owner", owner=owner, retention_ms=60_000))


def shown(items: list[TailItem]) -> list[str]:
    """The texts of a whole tail, which must be without a gap, and end with the terminal."""
    *chunks, last = items
    assert last.chunk is None
    assert last.terminal is not None
    assert last.terminal.state is State.COMPLETED
    assert [item.seq for item in chunks] == list(range(last.seq - len(chunks) + 1, last.seq + 1))
    return [item.chunk["delta"] for item in chunks if item.chunk is not None]


def test_readers_that_join_at_any_time_see_the_same(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run = claimed(store)
        early = tails.read()
        await tails.joined(1)
        write(store, run, 1, "a", "b", "c")
        middle = tails.read()
        await tails.joined(2)
        write(store, run, 4, "d")
        write(store, run, 5, "e", "f")
        late = tails.read()
        await tails.joined(3)
        end(store, run)
        after_the_end = tails.read()
        for reader in (early, middle, late, after_the_end):
            assert shown(await reader) == ["a", "b", "c", "d", "e", "f"]

    with_tails(store, program)


@pytest.mark.parametrize("after", range(7))
def test_a_cursor_may_be_anywhere_also_inside_a_batch(store: Store, after: int) -> None:
    """I17: of a live run and of one that has ended."""

    async def program(tails: Tails) -> None:
        run = claimed(store)
        write(store, run, 1, "a", "b", "c")
        write(store, run, 4, "d", "e", "f")
        live = tails.read(after=after)
        await tails.joined(1)
        write(store, run, 7, "g")
        end(store, run)
        assert shown(await live) == list("abcdefg")[after:]
        assert shown(await tails.read(after=after)) == list("abcdefg")[after:]

    with_tails(store, program)


def test_a_cursor_at_the_end_gets_the_terminal(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run = claimed(store)
        write(store, run, 1, "a")
        live = tails.read(after=1)
        await tails.joined(1)
        end(store, run)
        assert shown(await live) == []
        assert shown(await tails.read(after=1)) == []

    with_tails(store, program)


def test_fifty_readers_of_one_run_share_one_blocking_read(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run = claimed(store)
        readers = [tails.read() for _ in range(50)]
        await tails.joined(50)
        for number in range(40):
            write(store, run, number + 1, str(number))
        blocking = [client for client in store.client.client_list() if client["cmd"] == "xread"]
        end(store, run)
        for reader in readers:
            assert shown(await reader) == [str(number) for number in range(40)]
        assert len(blocking) == 1

    with_tails(store, program)


def test_a_run_that_is_added_while_the_hub_waits_for_another_is_heard_at_once(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run, other = claimed(store), claimed(store, OTHER_RUN_ID)
        silent = tails.read()
        await tails.joined(1)
        added = tails.read(OTHER_RUN_ID)
        await tails.joined(2)
        write(store, other, 1, "x")
        end(store, other)
        assert shown(await added) == ["x"]
        assert not silent.done()
        end(store, run)
        assert shown(await silent) == []

    with_tails(store, program)


def test_many_runs_that_are_added_together_are_all_heard(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run_ids = [f"{number % 4:02x}{number:024x}" for number in range(30)]
        runs = [claimed(store, run_id) for run_id in run_ids]
        readers = [tails.read(run_id) for run_id in run_ids]
        await tails.joined(30)
        for number, run in enumerate(runs):
            write(store, run, 1, str(number))
            end(store, run)
        for number, reader in enumerate(readers):
            assert shown(await reader) == [str(number)]

    with_tails(store, program)


async def taken(tail: AsyncIterator[TailItem], count: int) -> list[TailItem]:
    return [await anext(tail) for _ in range(count)]


@pytest.mark.parametrize("held_at", [1, 2, 3])
def test_a_slow_reader_rereads_what_its_buffer_could_not_hold(store: Store, held_at: int) -> None:
    """I17: it stops in the middle of what it was given, far more comes than its buffer holds, and then it goes on.
    Another reader shows that all of it was delivered meanwhile."""

    async def program(tails: Tails) -> None:
        run = claimed(store)
        async with aclosing(tails.hub.tail(RUN_ID)) as slow:  # type: ignore[type-var]
            fast = tails.read()
            first = asyncio.create_task(taken(slow, held_at))
            await tails.joined(2)
            for number in range(3):
                write(store, run, number + 1, str(number))
            got = await first
            for number in range(3, 60):
                write(store, run, number + 1, str(number))
            last = tails.read(after=59)
            await tails.joined(3)
            end(store, run)
            assert shown(await fast) == [str(number) for number in range(60)]
            await last
            got += [item async for item in slow]
            assert shown(got) == [str(number) for number in range(60)]

    with_tails(store, program, tail_buffer_entries=4)


def test_a_slow_reader_does_not_keep_the_hub_busy_when_the_run_has_ended(store: Store) -> None:
    """The terminal is delivered once; a stream that has ended is not read again and again."""

    async def program(tails: Tails) -> None:
        run = claimed(store)
        async with aclosing(tails.hub.tail(RUN_ID)) as slow:  # type: ignore[type-var]
            first = asyncio.create_task(taken(slow, 1))
            fast = tails.read()
            await tails.joined(2)
            write(store, run, 1, "a")
            got = await first
            end(store, run)
            await fast
            before = reads_so_far(store)
            for _ in range(200):
                await tails.executor.client.ping()
            assert reads_so_far(store) - before <= 1
            assert shown(got + [item async for item in slow]) == ["a"]

    with_tails(store, program)


def reads_so_far(store: Store) -> int:
    stats: Any = store.client.info("commandstats")
    return int(stats.get("cmdstat_xread", {"calls": 0})["calls"])


def test_a_broken_connection_loses_nothing(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run = claimed(store)
        reader = tails.read()
        await tails.joined(1)
        for number in range(20):
            write(store, run, number + 1, str(number))
            if number % 5 == 0:
                store.client.client_kill_filter(_type="normal", skipme=True)
        end(store, run)
        assert shown(await reader) == [str(number) for number in range(20)]

    with_tails(store, program)


@pytest.mark.parametrize("after", [-1, 4, True, 10**9])
def test_a_cursor_the_run_has_not_reached_is_refused(store: Store, after: int) -> None:
    async def program(tails: Tails) -> None:
        run = claimed(store)
        write(store, run, 1, "a", "b", "c")
        with pytest.raises(InvalidCursor):
            await tails.read(after=after)

    with_tails(store, program)


def test_a_run_that_is_not_there_is_not_found(store: Store) -> None:
    async def program(tails: Tails) -> None:
        with pytest.raises(RunNotFound):
            await tails.read(ids.new_run_id())
        with pytest.raises(InvalidInput):
            await tails.read("nonsense")

    with_tails(store, program)


def test_a_run_whose_keys_expire_under_a_reader_is_not_found(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run = claimed(store)
        reader = tails.read()
        await tails.joined(1)
        store.client.delete(run.run, run.stream)
        with pytest.raises(RunNotFound):
            await reader

    with_tails(store, program, tail_block_ms=20)


def test_a_reader_that_leaves_takes_its_watch_along_and_the_hub_goes_on(store: Store) -> None:
    async def program(tails: Tails) -> None:
        run, other = claimed(store), claimed(store, OTHER_RUN_ID)
        leaves, stays = tails.read(), tails.read(OTHER_RUN_ID)
        await tails.joined(2)
        leaves.cancel()
        await tails.joined(1)
        write(store, run, 1, "unheard")
        write(store, other, 1, "x")
        back = tails.read()
        await tails.joined(2)
        for one in (run, other):
            end(store, one)
        assert shown(await stays) == ["x"]
        assert shown(await back) == ["unheard"]

    with_tails(store, program)
