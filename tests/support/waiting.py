"""Waiting for a real condition with a deadline: what tests use where others would sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_POLL_S = 0.01


def until(predicate: Callable[[], T], seconds: float = 10.0, what: str = "condition") -> T:
    """Returns the first truthy value of `predicate`; AssertionError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := predicate()):
        assert time.monotonic() < deadline, f"{what} did not hold within {seconds} s"
        time.sleep(_POLL_S)
    return value


async def until_async(predicate: Callable[[], Awaitable[T]], seconds: float = 10.0, what: str = "condition") -> T:
    """As `until`, for an async predicate."""
    deadline = time.monotonic() + seconds
    while not (value := await predicate()):
        assert time.monotonic() < deadline, f"{what} did not hold within {seconds} s"
        await asyncio.sleep(_POLL_S)
    return value
