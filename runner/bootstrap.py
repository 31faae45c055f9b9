"""Builds the graph once: settings to links, links to a runtime.

Rules of this file: whoever builds closes; the runtime of a worker process is found through `current`, because RQ
calls an entry point by name and hands it no objects.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from runner import ids
from runner.agent import Agents
from runner.dispatch import Dispatcher
from runner.engine.hosting import Hosted
from runner.engine.requeue import Requeue
from runner.engine.runtime import Links, Runtime, writer_limits
from runner.engine.writer import AppendPipe
from runner.errors import InvalidInput, ServerUnreachable
from runner.store.connection import sync_client
from runner.store.executor import AsyncExecutor, SyncExecutor
from runner.store.keys import Keys
from runner.store.server import check_server

if TYPE_CHECKING:
    from runner.settings import Settings

_current: Runtime | None = None


def make_links(settings: Settings, *, patient: bool = False) -> Links:
    """What a client or supervisor needs. A patient one waits for a lost server as long as it takes.

    Raises ServerUnreachable when no address is configured: starting an embedded server is a program's decision.
    """
    url = server_url(settings)
    retries = None if patient else settings.command_retries
    store = AsyncExecutor(url, timeout_ms=settings.command_timeout_ms, retries=retries)
    broker = sync_client(settings.broker_url or url, timeout_ms=settings.command_timeout_ms)
    return Links(settings, Keys(settings.key_prefix), store, Dispatcher(broker, settings.queue))


def make_runtime(settings: Settings, agents: Agents, process_id: str | None = None) -> Runtime:
    """What a process that runs turns needs. Call it on the event loop that will run them."""
    links = make_links(settings, patient=True)
    return Runtime(
        settings=settings,
        keys=links.keys,
        store=links.store,
        dispatcher=links.dispatcher,
        agents=agents,
        process_id=process_id or ids.new_process_id(),
        pipe=AppendPipe(links.store, writer_limits(settings)),
        hosted=Hosted(links.keys),
        requeue=Requeue(links.dispatcher, links.store, links.keys, settings.queue_check_ms),
    )


def make_sync_store(settings: Settings, *, retries: int | None = None) -> SyncExecutor:
    """The store for a plain thread: heartbeats, and a pool's word that a process is gone."""
    return SyncExecutor(server_url(settings), timeout_ms=settings.command_timeout_ms, retries=retries)


def make_beat_store(settings: Settings) -> SyncExecutor:
    """The store of a heart: it gives a dead connection up early enough to renew the leases over another one."""
    timeout_ms = min(settings.command_timeout_ms, (settings.lease_ms - settings.beat_ms) // 3)
    return SyncExecutor(server_url(settings), timeout_ms=timeout_ms, retries=None)


async def check_store(settings: Settings) -> None:
    """Refuses a server that cannot be used: raises ServerUnreachable, ServerTooOld or ServerEvicts."""
    store = AsyncExecutor(server_url(settings), timeout_ms=settings.command_timeout_ms)
    try:
        await check_server(store, allow_eviction=settings.allow_eviction)
    finally:
        await store.aclose()


async def close_links(links: Links) -> None:
    """Closes what `make_links` opened."""
    links.dispatcher.close()
    await links.store.aclose()


async def close_runtime(runtime: Runtime) -> None:
    """Closes what `make_runtime` opened."""
    await runtime.pipe.aclose()
    await close_links(runtime)


def install(runtime: Runtime | None) -> None:
    """Makes a runtime the one that entry points of this process use."""
    global _current  # noqa: PLW0603 - RQ calls entry points by name; there is nowhere else to hand it over
    _current = runtime


def current() -> Runtime:
    """The runtime of this process."""
    assert _current is not None, "no runtime is installed: an entry point was called outside a worker"
    return _current


def load_agents(path: str) -> Agents:
    """The agents at `module:attribute`. InvalidInput names what is wrong with the path."""
    module_name, _, attribute = path.partition(":")
    try:
        agents = getattr(importlib.import_module(module_name), attribute or "agents")
    except (ImportError, AttributeError) as why:
        raise InvalidInput(f"RUNNER_AGENTS={path!r} cannot be loaded: {why}; name it as module:attribute") from why
    if not isinstance(agents, Agents):
        raise InvalidInput(f"RUNNER_AGENTS={path!r} is a {type(agents).__name__}, not an `Agents`")
    return agents


def server_url(settings: Settings) -> str:
    """The configured address of the store."""
    if settings.redis_url is None:
        raise ServerUnreachable("(no address)", "RUNNER_REDIS_URL is not set and no embedded server was started")
    return settings.redis_url
