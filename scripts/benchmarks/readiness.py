"""Waiting until the processes of a benchmark are there, as their own beats tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from runner import ids
from runner.client import Runner
from runner.store.call import Call
from runner.store.records import ProcessFacts

READY_S = 60.0
_TICK_S = 0.02


async def workers_ready(
    runner: Runner, count: int, accept: Callable[[ProcessFacts], bool] = lambda _: True
) -> list[ProcessFacts]:
    """The worker processes that beat and are accepted, once there are `count` of them. TimeoutError after a minute."""
    deadline = time.monotonic() + READY_S
    while True:
        found = [facts for facts in await runner.workers() if accept(facts)]
        if len(found) >= count:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count} worker processes did not come up within {READY_S:g} s; there are {len(found)}")
        await asyncio.sleep(_TICK_S)


async def all_ended(runner: Runner, seconds: float = 300.0) -> None:
    """Returns when no run is live any more. TimeoutError after `seconds`."""
    links = runner.links
    counts = [Call("ZCARD", int, (), (links.keys.due(p),), is_act=False) for p in range(ids.PARTITIONS)]
    deadline = time.monotonic() + seconds
    while sum(await links.store.run_many(counts)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"runs had not ended after {seconds:g} s")
        await asyncio.sleep(_TICK_S)
