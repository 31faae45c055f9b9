"""Plain RQ: a stock fork worker whose job writes one stream entry, to compare a first chunk with."""

from __future__ import annotations

import logging
from typing import Any

import redis
from rq import Queue, Worker, get_current_job

from runner.settings import Settings

QUEUE = "plain"


def write_one(stream: str) -> None:
    """The job: one entry, over the connection that RQ has already."""
    job = get_current_job()
    assert job is not None
    job.connection.xadd(stream, {"c": b"x"})


def work(settings: Settings) -> int:
    """Works until SIGTERM."""
    assert settings.redis_url is not None
    logging.getLogger("rq").setLevel(logging.CRITICAL)
    Worker([QUEUE], connection=redis.Redis.from_url(settings.redis_url)).work(logging_level="CRITICAL")
    return 0


class PlainClient:
    """Enqueues such jobs and waits for their entry."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._queue = Queue(QUEUE, connection=redis.Redis.from_url(url))
        self._reader: Any = self._client.connection_pool.get_connection()

    def first_entry(self, stream: str, clock: Any) -> float:
        """Seconds from the call of enqueue to the entry in hand, the reader having blocked before."""
        self._reader.send_command("XREAD", "BLOCK", 20_000, "STREAMS", stream, "0")
        began = clock()
        self._queue.enqueue(write_one, stream, result_ttl=60)
        entry = self._reader.read_response()
        taken = float(clock() - began)
        assert entry, "the stock worker wrote nothing within 20 s"
        return taken

    def close(self) -> None:
        """Closes its connections."""
        self._client.connection_pool.release(self._reader)
        self._client.close()
        self._queue.connection.close()
