"""Blocking reads, each on a connection of its own.

Rules of this file: a connection that blocks belongs to nobody else; when its reader is cancelled it is closed, because
a late reply on it would answer somebody else's question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.store.answers import Entry
from runner.store.connection import LOST, async_client
from runner.store.reads import read_entry


class BlockingReader:
    """One connection that waits for new entries of many streams."""

    def __init__(self, url: str, *, block_ms: int, timeout_ms: int) -> None:
        self._url, self._block_ms = url, block_ms
        self._timeout_ms = block_ms + timeout_ms
        self._connection: Any = None
        self.client_id = 0
        """The server's number of this connection, 0 when there is none; `CLIENT UNBLOCK` takes it."""

    async def read(self, cursors: Mapping[str, int], *, count: int) -> dict[str, list[Entry]]:
        """New entries behind each stream's cursor (a seq), by key; empty after `block_ms` of silence.

        Raises one of `connection.LOST` when the connection broke: read again from the same cursors.
        """
        try:
            connection = self._connection or await self._connect()
            names = list(cursors)
            positions = [f"{cursors[name]}-0" for name in names]
            words = ("XREAD", "COUNT", count, "BLOCK", self._block_ms, "STREAMS", *names, *positions)
            await connection.send_command(*words)
            raw = await connection.read_response()
        except BaseException:
            await self.aclose()
            raise
        if raw is None:
            return {}
        return {name.decode(): [read_entry(*item) for item in entries] for name, entries in raw}

    async def aclose(self) -> None:
        """Drops the connection, whatever it is waiting for."""
        connection, self._connection, self.client_id = self._connection, None, 0
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _connect(self) -> Any:
        pool: Any = async_client(self._url, timeout_ms=self._timeout_ms).connection_pool
        connection = pool.make_connection()
        await connection.connect()
        self._connection = connection
        await connection.send_command("CLIENT", "ID")
        self.client_id = await connection.read_response()
        return connection


__all__ = ["LOST", "BlockingReader"]
