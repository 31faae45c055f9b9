"""An event loop whose time passes only when nothing else is left to do.

Rules of this file: a wait costs no real time; a program that waits for something that cannot happen any more is told
so at once; what would run in a thread runs on the loop, so that the same program always takes the same way.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StoodStill(AssertionError):
    """Every part of the program waits, and nothing is left that could wake one."""


class Stalled(BaseException):
    """Raised by a blocking call whose process stands still: it is made anew once `until` is set."""

    def __init__(self, until: asyncio.Event) -> None:
        self.until = until
        super().__init__("stalled")


class _Leap(selectors.DefaultSelector):
    """Never waits: what a wait would have taken is added to `passed_s`."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StoodStill("the simulated program waits for ever")
            self.passed_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock starts at 0 and leaps from one timer to the next."""

    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        return self._leap.passed_s

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Runs a blocking function at the next turn of the loop; no thread is involved."""
        return self.create_task(_inline(func, *args))


async def _inline(func: Callable[..., T], *args: Any) -> T:
    while True:
        try:
            return func(*args)
        except Stalled as stalled:
            await stalled.until.wait()


def run_virtual(program: Coroutine[Any, Any, T]) -> T:
    """Runs a program to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(program)


async def pass_ms(ms: float) -> None:
    """Lets that much time of the loop pass."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(ms / 1_000, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()
