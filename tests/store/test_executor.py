"""The executors: scripts are loaded when they are missing, and a lost reply is answered by the call's own promise."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from runner.errors import InvalidInput, ServerRefused, ServerUnreachable
from runner.store import calls, reads
from runner.store.answers import Answer, Code
from runner.store.call import Call
from runner.store.connection import bad_url, retry_delay_ms, without_password
from runner.store.executor import AsyncExecutor, SyncExecutor
from tests.support.proxy import Proxy
from tests.support.server import TestServer, free_port
from tests.support.store import Store, batch, claimed, texts
from tests.support.waiting import until_async

COLOURS = ("async", "sync")
RunCalls = Callable[[Sequence[Call[Any]]], list[Any]]
GET = Call("GET", lambda raw: raw, (), ("k",), is_act=False)


def incr(*, repeatable: bool, key: str = "counter") -> Call[int]:
    """A command that does not recognise itself: each time it is sent, it counts."""
    return Call("INCR", int, (), (key,), is_act=False, repeatable=repeatable)


def run_on(colour: str, url: str, requests: Sequence[Call[Any]], *, many: bool = False, **options: Any) -> list[Any]:
    """What a new executor of that colour answers at `url`, one by one or in one pipeline."""
    if colour == "sync":
        executor = SyncExecutor(url, **options)
        try:
            return executor.run_many(requests) if many else [executor.run(call) for call in requests]
        finally:
            executor.close()
    return asyncio.run(_run_async(url, requests, many=many, **options))


async def _run_async(url: str, requests: Sequence[Call[Any]], *, many: bool, **options: Any) -> list[Any]:
    executor = AsyncExecutor(url, **options)
    try:
        return await executor.run_many(requests) if many else [await executor.run(call) for call in requests]
    finally:
        await executor.aclose()


def test_missing_scripts_are_loaded_by_the_async_executor(store: Store) -> None:
    async def scenario() -> tuple[list[Answer], list[Answer]]:
        executor = store.async_executor()
        try:
            one_by_one = []
            for seq in (1, 2):
                await executor.client.script_flush()
                one_by_one.append(await executor.run(calls.append(run, 1, batch(seq, str(seq)))))
            await executor.client.script_flush()
            return one_by_one, await executor.run_many([calls.append(run, 1, batch(n, str(n))) for n in (3, 4, 5)])
        finally:
            await executor.aclose()

    run = claimed(store)
    alone, together = asyncio.run(scenario())
    assert alone == [Answer(Code.OK, 1), Answer(Code.OK, 2)]
    assert together == [Answer(Code.OK, 3), Answer(Code.OK, 4), Answer(Code.OK, 5)]
    assert texts(store.entries(run)) == ["1", "2", "3", "4", "5"]


def test_missing_scripts_are_loaded_by_the_sync_executor(store: Store) -> None:
    run = claimed(store)
    store.client.script_flush()
    assert store.run(calls.append(run, 1, batch(1, "a"))) == Answer(Code.OK, 1)
    store.client.script_flush()
    requests = [calls.append(run, 1, batch(n, str(n))) for n in (2, 3)]
    assert store.executor.run_many(requests) == [Answer(Code.OK, 2), Answer(Code.OK, 3)]


def test_both_executors_answer_alike(store: Store) -> None:
    run = claimed(store)
    requests: list[Call[Any]] = [reads.read_run(run), reads.read_events(run), reads.read_due(store.keys, 0)]

    async def scenario() -> list[Any]:
        executor = store.async_executor()
        try:
            alone = [await executor.run(call) for call in requests]
            assert await executor.run_many(requests) == alone
            return alone
        finally:
            await executor.aclose()

    assert asyncio.run(scenario()) == [store.run(call) for call in requests] == store.executor.run_many(requests)


def test_nothing_to_send_is_no_trip(store: Store) -> None:
    assert store.executor.run_many([]) == []


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_repeatable_call_is_sent_again_when_its_reply_is_lost(
    real: Store, proxy: Proxy, colour: str, many: bool
) -> None:
    proxy.drop_next_reply(to=b"INCR")
    assert run_on(colour, proxy.url, [incr(repeatable=True)], many=many) == [2], "the server had done it already"
    assert proxy.dropped == 1


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_call_that_may_not_be_repeated_is_not(real: Store, proxy: Proxy, colour: str, many: bool) -> None:
    requests = [incr(repeatable=True, key="other"), incr(repeatable=False)] if many else [incr(repeatable=False)]
    proxy.drop_next_reply(to=b"counter")
    with pytest.raises(ServerUnreachable):
        run_on(colour, proxy.url, requests, many=many)
    assert real.client.get("counter") == b"1"


@pytest.mark.parametrize("colour", COLOURS)
def test_an_append_whose_reply_is_lost_is_stored_once(real: Store, proxy: Proxy, colour: str) -> None:
    run = claimed(real)
    proxy.drop_next_reply(to=run.stream.encode())
    assert run_on(colour, proxy.url, [calls.append(run, 1, batch(1, "a", "b"))]) == [Answer(Code.OK, 2)]
    assert proxy.dropped == 1
    assert texts(real.entries(run)) == ["a", "b"]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_lost_reply_to_the_loading_of_a_script_is_no_failure(
    real: Store, proxy: Proxy, colour: str, many: bool
) -> None:
    run = claimed(real)
    real.client.script_flush()
    proxy.drop_next_reply(to=b"SCRIPT")
    assert run_on(colour, proxy.url, [calls.append(run, 1, batch(1, "a"))], many=many) == [Answer(Code.OK, 1)]
    assert proxy.dropped == 1
    assert texts(real.entries(run)) == ["a"]


def test_connections_that_are_cut_while_idle_are_made_anew(real: Store, proxy: Proxy) -> None:
    real.client.set("k", "v")

    async def scenario() -> list[Any]:
        executor = AsyncExecutor(proxy.url)
        try:
            before = await executor.run(GET)
            proxy.cut()
            return [before, *await asyncio.gather(*(executor.run(GET) for _ in range(20)))]
        finally:
            await executor.aclose()

    assert asyncio.run(scenario()) == [b"v"] * 21


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_refusal_of_the_server_is_a_typed_error(real: Store, server: TestServer, colour: str, many: bool) -> None:
    real.client.set(real.of().run, "no hash")
    with pytest.raises(ServerRefused, match="WRONGTYPE") as refusal:
        run_on(colour, server.url, [GET, reads.read_run(real.of())], many=many)
    assert refusal.value.operation == "HGETALL"


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("address", ["redis://me:s3cret@{host}/0", "redis://{host}/0?password=s3cret&db=1"])
def test_a_server_that_is_not_there_is_named_without_its_password(colour: str, address: str, many: bool) -> None:
    url = address.format(host=f"127.0.0.1:{free_port()}")
    with pytest.raises(ServerUnreachable) as refusal:
        run_on(colour, url, [GET], many=many, retries=1)
    assert "s3cret" not in str(refusal.value)
    assert "s3cret" not in refusal.value.url
    assert "***" in refusal.value.url


@pytest.mark.parametrize("colour", COLOURS)
def test_a_server_that_never_answers_is_given_up(colour: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with pytest.raises(ServerUnreachable):
            run_on(colour, url, [GET], timeout_ms=100, retries=0)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("url", ["", "localhost:6379", "http://host", "redis://me:s3cret@host:port", "redis://h:99999"])
def test_a_malformed_address_is_refused_with_the_way_out(colour: str, url: str) -> None:
    with pytest.raises(InvalidInput, match="redis://host:port/db") as refusal:
        run_on(colour, url, [GET])
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:pw@h:1/0", "redis://:***@h:1/0"),
        ("rediss://me:p@ss:w@h", "rediss://me:***@h"),
        ("unix:///run/s?db=1&password=pw", "unix:///run/s?db=1&password=***"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert shown in str(bad_url(url, "why"))


def test_delays_double_up_to_a_longest_one() -> None:
    assert [retry_delay_ms(failures) for failures in (1, 2, 3, 7, 1_000)] == [20, 40, 80, 1_000, 1_000]


def test_a_patient_executor_waits_for_the_server_to_come_back() -> None:
    async def scenario(server: TestServer) -> Any:
        executor = AsyncExecutor(server.url, retries=None)
        try:
            await executor.client.set("k", "v")
            server.stop()
            waiting = asyncio.create_task(executor.run(GET))
            await asyncio.to_thread(server.restart)
            return await waiting
        finally:
            await executor.aclose()

    with TestServer() as server:
        assert asyncio.run(scenario(server)) == b"v"


def test_a_server_that_became_a_replica_is_waited_for_like_one_that_is_away() -> None:
    async def scenario(server: TestServer) -> Any:
        executor = AsyncExecutor(server.url, retries=1)
        try:
            await executor.client.replicaof("127.0.0.1", free_port())
            with pytest.raises(ServerUnreachable, match="read only"):
                await executor.run(incr(repeatable=True))
            with pytest.raises(ServerUnreachable, match="read only"):
                await executor.run_many([GET, incr(repeatable=True)])
            with pytest.raises(ServerUnreachable, match="read only"):
                await asyncio.to_thread(run_on, "sync", server.url, [incr(repeatable=True)], many=True, retries=0)
            await executor.client.replicaof("NO", "ONE")
            return await executor.run(incr(repeatable=True))
        finally:
            await executor.aclose()

    with TestServer() as server:
        assert asyncio.run(scenario(server)) == 1


def test_a_cancelled_call_leaves_no_reply_for_the_next_one(real: Store, server: TestServer) -> None:
    """BP-33, for calls: each answer is the caller's own."""
    waiting = Call("BLPOP", lambda raw: raw, (0,), ("nothing",), is_act=False)

    async def scenario() -> list[Any]:
        executor = AsyncExecutor(server.url)
        try:
            for number in range(10):
                await executor.client.set(f"k{number}", number)
            blocked = asyncio.create_task(executor.run(waiting))
            await until_blocked(executor, 1)
            blocked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await blocked
            gets = [Call("GET", int, (), (f"k{n}",), is_act=False) for n in range(10)]
            answers = [await executor.run(call) for call in gets]
            await until_blocked(executor, 0)
            return answers
        finally:
            await executor.aclose()

    assert asyncio.run(scenario()) == list(range(10))


async def until_blocked(executor: AsyncExecutor, count: int) -> None:
    """Returns when the server counts so many blocked clients."""

    async def counted() -> bool:
        info: Any = await executor.client.info("clients")
        return bool(info["blocked_clients"] == count)

    await until_async(counted, what=f"{count} blocked clients")
