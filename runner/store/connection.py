"""Connections to the server: one place that says how they are made.

Rules of this file: the client library never repeats a command by itself (it cannot know which are safe); every command
has a timeout; a client is built per event loop and per process, never shared across a fork.
"""

from __future__ import annotations

import re
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from runner.errors import InvalidInput

LOST = (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, TimeoutError, OSError)
"""What says that a command's fate is unknown or that the server cannot take it now; it may pass."""

MOST_CONNECTIONS = 32
"""Connections of one async client at most; a burst of calls waits for its turn instead of opening one each."""

_FIRST_DELAY_MS, _LONGEST_DELAY_MS = 20, 1_000


def async_client(url: str, *, timeout_ms: int) -> redis.asyncio.Redis:
    """A client for one event loop. InvalidInput for a malformed address."""
    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=MOST_CONNECTIONS,
            timeout=None,
            retry=AsyncRetry(NoBackoff(), 0),
            **_options(timeout_ms),
        )
    except ValueError as why:
        raise bad_url(url, str(why)) from None
    return redis.asyncio.Redis.from_pool(pool)


def sync_client(url: str, *, timeout_ms: int) -> redis.Redis:
    """A client for plain threads. InvalidInput for a malformed address."""
    try:
        client: redis.Redis = redis.Redis.from_url(url, **_options(timeout_ms), retry=Retry(NoBackoff(), 0))
    except ValueError as why:
        raise bad_url(url, str(why)) from None
    return client


def bad_url(url: str, why: str) -> InvalidInput:
    """The refusal of an address, without its password."""
    return InvalidInput(
        f"{without_password(url)!r} is no server address ({why}); use redis://host:port/db, rediss://... or unix:///path"
    )


def without_password(url: str) -> str:
    """An address that may be shown: neither its user part nor its query tells the password."""
    url = re.sub(r"([?&]password=)[^&]*", r"\1***", url)
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, _, credentials = head.partition("://")
    return f"{scheme}://{credentials.partition(':')[0]}:***@{tail}"


def retry_delay_ms(failures: int) -> int:
    """How long to wait after the n-th failure in a row, n from 1."""
    return int(min(_LONGEST_DELAY_MS, _FIRST_DELAY_MS * 2 ** min(failures - 1, 16)))


def _options(timeout_ms: int) -> dict[str, Any]:
    seconds = timeout_ms / 1_000
    return {"socket_timeout": seconds, "socket_connect_timeout": seconds, "protocol": 2, "health_check_interval": 0}
