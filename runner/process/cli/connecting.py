"""How a command that asks something reaches the server.

Rule of this file: the server is found first, because that blocks; the event loop runs while its lease is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runner.client import Runner
from runner.process.address import with_server
from runner.settings import Settings, load_settings


def with_runner(work: Callable[[Runner], Awaitable[int]], settings: Settings | None = None) -> int:
    """The exit code of `work`, given a runner for the configured server."""
    with with_server(settings or load_settings()) as served:
        return asyncio.run(_inside(served, work))


async def _inside(settings: Settings, work: Callable[[Runner], Awaitable[int]]) -> int:
    async with Runner(settings) as runner:
        return await work(runner)
