"""Waiting until the processes of a benchmark are there, as their own beats tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from runner.client import Runner
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
