"""Stopping a background piece of work for sure.

Rule of this file: a cancellation can be swallowed below us (on Python 3.11 a wait with a timeout does it when both come
at once), so it is repeated until the work is over.
"""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.1


async def stop(work: asyncio.Task[Any] | None) -> None:
    """Cancels the work and returns when it is over, however it ended."""
    while work is not None and not work.done():
        work.cancel()
        await asyncio.wait([work], timeout=AGAIN_S)
