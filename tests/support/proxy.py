"""A loopback proxy in front of a server, to lose replies and connections at a chosen moment.

Rules of this file: it forwards bytes and understands none of them; what it drops, the server has already been told.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from redis.connection import parse_url

_READ_BYTES = 65_536


class _Link:
    """One client's connection and the one to the server behind it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.doomed = False

    def end(self) -> None:
        """Wakes whoever reads from either side."""
        for side in (self.client, self.server):
            with suppress(OSError):  # that side has gone already
                side.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Proxy:
    """Stands between clients and the server at `upstream_url` (redis:// or unix://), without TLS."""

    def __init__(self, upstream_url: str) -> None:
        self._upstream: dict[str, Any] = dict(parse_url(upstream_url))
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._marker: bytes | None = None
        self._closed = False
        self.dropped = 0
        """Replies dropped so far."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    @property
    def url(self) -> str:
        """Where clients connect; the same database as upstream."""
        port: int = self._listener.getsockname()[1]
        return f"redis://127.0.0.1:{port}/{self._upstream.get('db', 0)}"

    def drop_next_reply(self, to: bytes = b"") -> None:
        """Forwards the next request that contains `to`, and drops its connection instead of the reply."""
        with self._lock:
            self._marker = to

    def cut(self) -> None:
        """Drops every connection there is; new ones are accepted."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.end()

    def close(self) -> None:
        """Ends everything; returns when its threads have ended. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a thread of the proxy did not end"
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                link = _Link(client, self._connect())
            except OSError:
                client.close()  # nobody answers upstream: the client sees just that
                continue
            with self._lock:
                self._links.add(link)
            if self._closed:
                link.end()
            self._start(self._serve, link)

    def _connect(self) -> socket.socket:
        if "path" in self._upstream:
            link = socket.socket(socket.AF_UNIX)
            try:
                link.connect(self._upstream["path"])
            except OSError:
                link.close()
                raise
            return link
        return socket.create_connection((self._upstream.get("host", "localhost"), self._upstream.get("port", 6379)))

    def _serve(self, link: _Link) -> None:
        """Carries requests; a thread of its own carries the replies."""
        replies = threading.Thread(target=self._carry_replies, args=(link,), daemon=True)
        replies.start()
        while request := _read(link.client):
            with self._lock:
                if self._marker is not None and self._marker in request:
                    self._marker, link.doomed = None, True
            if not _write(link.server, request):
                break
        link.end()
        replies.join()
        link.close()
        with self._lock:
            self._links.discard(link)

    def _carry_replies(self, link: _Link) -> None:
        while reply := _read(link.server):
            if link.doomed:
                self.dropped += 1
                break
            if not _write(link.client, reply):
                break
        link.end()

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read(side: socket.socket) -> bytes:
    try:
        return side.recv(_READ_BYTES)
    except OSError:
        return b""


def _write(side: socket.socket, data: bytes) -> bool:
    try:
        side.sendall(data)
    except OSError:
        return False
    return True
