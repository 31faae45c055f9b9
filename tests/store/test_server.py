"""Which servers are taken, and what is said of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from runner.errors import ServerEvicts, ServerTooOld, ServerUnreachable
from runner.store import reads
from runner.store.executor import AsyncExecutor
from runner.store.server import ServerFacts, check_server
from tests.support.server import TestServer, free_port
from tests.support.store import Store


def check(url: str, *, allow_eviction: bool = False) -> ServerFacts:
    async def scenario() -> ServerFacts:
        executor = AsyncExecutor(url, retries=0)
        try:
            return await check_server(executor, allow_eviction=allow_eviction)
        finally:
            await executor.aclose()

    return asyncio.run(scenario())


@pytest.fixture
def evicting(real: Store) -> Iterator[Store]:
    real.client.config_set("maxmemory-policy", "allkeys-lru")
    yield real
    real.client.config_set("maxmemory-policy", "noeviction")


def test_the_embedded_server_is_taken(server: TestServer) -> None:
    facts = check(server.url)
    assert facts.product in ("redis", "valkey")
    assert facts.version[0].isdigit()
    assert (facts.policy, facts.persistence) == ("noeviction", "aof everysec")


def test_a_server_that_may_drop_runs_is_refused_unless_that_is_accepted(evicting: Store) -> None:
    with pytest.raises(ServerEvicts) as refusal:
        check(evicting.url)
    assert refusal.value.policy == "allkeys-lru"
    assert check(evicting.url, allow_eviction=True).policy == "allkeys-lru"


def test_what_a_server_does_not_tell_is_unknown(real: Store, server: TestServer) -> None:
    real.client.acl_setuser("shy", enabled=True, passwords=["+pw"], categories=["+@all"], commands=["-config"])
    try:
        facts = check(f"unix://shy:pw@{server.url.removeprefix('unix://')}")
        assert (facts.policy, facts.persistence) == ("unknown", "unknown")
    finally:
        real.client.acl_deluser("shy")


def test_a_server_below_the_floor_is_refused() -> None:
    """An old server, as far as it is asked: everything else it only says yes to."""
    info = b"# Server\r\nredis_version:6.2.14\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await reader.read(4_096):
            told = b"$%d\r\n%b\r\n" % (len(info), info)
            said = [b"*0\r\n" if b"CONFIG" in request else told if b"INFO\r\n" in request else b"+OK\r\n"]
            writer.writelines(said * request.count(b"*"))
        writer.close()

    async def scenario() -> Any:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        executor = AsyncExecutor(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", retries=0)
        async with server:
            try:
                with pytest.raises(ServerTooOld) as refusal:
                    await check_server(executor)
                return refusal.value
            finally:
                await executor.aclose()

    refused = asyncio.run(scenario())
    assert (refused.product, refused.version) == ("redis", "6.2.14")
    assert "Redis 7.0 or newer" in str(refused)


def test_the_servers_clock_can_be_read(store: Store) -> None:
    assert store.run(reads.read_time()) > 1_600_000_000_000


def test_no_server_is_said_so() -> None:
    with pytest.raises(ServerUnreachable):
        check(f"redis://127.0.0.1:{free_port()}")
