"""Blocking reads on connections of their own (BP-30, BP-33)."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from runner.core.run import Ending, State
from runner.store import calls
from runner.store.blocking import BlockingReader
from runner.store.connection import LOST
from tests.support.proxy import Proxy
from tests.support.server import TestServer
from tests.support.store import OTHER_RUN_ID, OWNER, Store, batch, claimed, texts
from tests.support.waiting import until, until_async

BLOCK_MS = 30_000


def with_reader(url: str, use: Callable[[BlockingReader], Awaitable[Any]], *, block_ms: int = BLOCK_MS) -> Any:
    """What `use` answers, given a reader of its own event loop."""

    async def scenario() -> Any:
        reader = BlockingReader(url, block_ms=block_ms, timeout_ms=5_000)
        try:
            return await use(reader)
        finally:
            await reader.aclose()

    return asyncio.run(scenario())


def blocked(store: Store) -> int:
    info: Any = store.client.info("clients")
    return int(info["blocked_clients"])


async def waiting_read(store: Store, reader: BlockingReader, cursors: dict[str, int]) -> asyncio.Task[Any]:
    """A read that the server holds."""

    async def held() -> bool:
        return blocked(store) == 1

    task = asyncio.create_task(reader.read(cursors, count=100))
    await until_async(held, what="the blocked reader")
    return task


def test_what_is_there_is_read_at_once_from_many_streams(real: Store) -> None:
    run, other = claimed(real), claimed(real, OTHER_RUN_ID)
    for seq in range(1, 15):
        real.run(calls.append(run, 1, batch(seq, str(seq))))
    real.run(calls.finish(other, 1, Ending(State.COMPLETED, "finished"), by="owner", owner=OWNER, retention_ms=60_000))
    found = with_reader(real.url, lambda reader: reader.read({run.stream: 10, other.stream: 0}, count=100))
    assert texts(found[run.stream]) == ["11", "12", "13", "14"]
    assert [entry.terminal.state for entry in found[other.stream]] == [State.COMPLETED]


def test_silence_is_an_empty_answer_and_the_reader_goes_on(real: Store) -> None:
    run = claimed(real)

    async def use(reader: BlockingReader) -> tuple[Any, Any, bool]:
        first = await reader.read({run.stream: 0}, count=10)
        connection = reader.client_id
        real.run(calls.append(run, 1, batch(1, "a")))
        second = await reader.read({run.stream: 0}, count=10)
        return first, second, connection == reader.client_id != 0

    first, second, same = with_reader(real.url, use, block_ms=10)
    assert first == {}
    assert texts(second[run.stream]) == ["a"]
    assert same


def test_an_append_wakes_a_waiting_reader(real: Store) -> None:
    run = claimed(real)

    async def use(reader: BlockingReader) -> Any:
        task = await waiting_read(real, reader, {run.stream: 0})
        real.run(calls.append(run, 1, batch(1, "a")))
        return await task

    assert texts(with_reader(real.url, use)[run.stream]) == ["a"]


def test_a_waiting_reader_can_be_unblocked_to_take_other_streams(real: Store) -> None:
    run = claimed(real)

    async def use(reader: BlockingReader) -> Any:
        task = await waiting_read(real, reader, {run.stream: 0})
        real.client.client_unblock(reader.client_id)
        return await task

    assert with_reader(real.url, use) == {}


def test_a_cancelled_reader_takes_its_connection_with_it(real: Store) -> None:
    """BP-33: nobody is left blocked, nothing is left open, and others get their own answers."""
    run = claimed(real)
    for number in range(10):
        real.client.set(f"k{number}", number)
    before = blocked(real)

    async def use(reader: BlockingReader) -> list[Any]:
        executor = real.async_executor()
        try:
            task = await waiting_read(real, reader, {run.stream: 0})
            name = reader.client_id
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert reader.client_id == 0
            answers = [await executor.client.get(f"k{number}") for number in range(10)]
            until(lambda: blocked(real) == before, what="the blocked clients as before")
            until(lambda: name not in _clients(real), what="the end of the connection")
            real.run(calls.append(run, 1, batch(1, "a")))
            assert texts((await reader.read({run.stream: 0}, count=1))[run.stream]) == ["a"]
            return answers
        finally:
            await executor.aclose()

    assert with_reader(real.url, use) == [str(number).encode() for number in range(10)]


def _clients(store: Store) -> set[int]:
    listed: Any = store.client.client_list()
    return {int(client["id"]) for client in listed}


def test_a_reader_that_lost_its_connection_reads_on_from_the_same_cursors(real: Store, proxy: Proxy) -> None:
    run = claimed(real)
    real.run(calls.append(run, 1, batch(1, "a")))

    async def use(reader: BlockingReader) -> list[str]:
        seen = texts((await reader.read({run.stream: 0}, count=1))[run.stream])
        task = await waiting_read(real, reader, {run.stream: 1})
        proxy.cut()
        with pytest.raises(LOST):
            await task
        real.run(calls.append(run, 1, batch(2, "b")))
        return seen + texts((await reader.read({run.stream: 1}, count=1))[run.stream])

    assert with_reader(proxy.url, use) == ["a", "b"]


def test_a_lost_reply_loses_no_entry(real: Store, proxy: Proxy) -> None:
    run = claimed(real)
    real.run(calls.append(run, 1, batch(1, "a")))
    proxy.drop_next_reply(to=b"XREAD")

    async def use(reader: BlockingReader) -> list[str]:
        with pytest.raises(LOST):
            await reader.read({run.stream: 0}, count=1)
        return texts((await reader.read({run.stream: 0}, count=1))[run.stream])

    assert with_reader(proxy.url, use) == ["a"]


def test_a_reader_without_a_server_says_that_it_is_lost(server: TestServer) -> None:
    async def use(reader: BlockingReader) -> None:
        for _ in range(2):
            with pytest.raises(LOST):
                await reader.read({"k": 0}, count=1)
            assert reader.client_id == 0

    with_reader(f"{server.url}.not-there", use)


def test_a_reader_that_is_cancelled_while_it_connects_leaves_nothing_open() -> None:
    """What is left open warns when it is collected, and a warning fails the test."""

    async def use(reader: BlockingReader) -> None:
        task = asyncio.create_task(reader.read({"k": 0}, count=1))
        link = await loop_accept(silent)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with link:
            while await asyncio.get_running_loop().sock_recv(link, 1_000):
                pass  # until its end: the reader has hung up

    async def loop_accept(listener: socket.socket) -> socket.socket:
        link, _ = await asyncio.get_running_loop().sock_accept(listener)
        link.setblocking(False)
        return link

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        with_reader(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", use)
    gc.collect()


def test_a_key_that_is_no_stream_is_refused_and_the_connection_dropped(real: Store) -> None:
    real.client.set("k", "v")

    async def use(reader: BlockingReader) -> int:
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            await reader.read({"k": 0}, count=1)
        return reader.client_id

    assert with_reader(real.url, use) == 0
