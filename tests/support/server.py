"""A real server for tests: fresh, private, and hurt on purpose.

Rules of this file: it is the product's own launcher, with no linger, so that a server never outlives the test process
that asked for it, however that process ends. Its data lives in a temporary directory that goes with the test.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from runner.process import server_keeper as keeper
from runner.process.data_directory import is_held
from runner.process.embedded import EmbeddedServer, free_port, start_or_attach
from tests.support.waiting import until

__all__ = ["TestServer", "fake_binary", "free_port", "fresh_server"]


class TestServer:
    """One fresh server. `tcp=True` also listens on a free loopback port, and `url` names that port."""

    __test__ = False  # not a test class, whatever its name

    def __init__(self, *, tcp: bool = False, binary: str | None = None) -> None:
        self.data_dir = Path(tempfile.mkdtemp(prefix="tr-"))
        self._binary = binary
        self._server = self._start(0 if tcp else None)
        self._port = self._server.port

    @property
    def url(self) -> str:
        """Stays the same over `restart`."""
        return self._server.url

    @property
    def pid(self) -> int:
        return self._server.pid

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. The data stays for `restart`."""
        os.kill(self.pid, signal.SIGKILL)
        until(self._gone, what="end of the killed server")
        self._server.close()

    def stop(self) -> None:
        """A planned stop, of a paused server too; returns when the process is gone. The data stays for `restart`."""
        if not self._gone():
            self.resume()
        self._server.stop()

    def restart(self) -> None:
        """The same data at the same address, in a new process. A running server is stopped first."""
        self.stop()
        self._server = self._start(self._port)

    def pause(self) -> None:
        """SIGSTOP; returns when the process stands still. Its connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED, what="standstill of the server")

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stops the server and removes its data. May be called twice."""
        self.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def _start(self, port: int | None) -> EmbeddedServer:
        return start_or_attach(self.data_dir, configured_binary=self._binary, port=port, timeout_s=30, linger_s=0)

    def _gone(self) -> bool:
        return not any(is_held(self.data_dir, lock) for lock in (keeper.SERVER_LOCK, keeper.KEEPER_LOCK))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def fresh_server(*, tcp: bool = False, binary: str | None = None) -> Iterator[TestServer]:
    """A server for the length of a `with` block; as a fixture: `with fresh_server() as server: yield server`."""
    with TestServer(tcp=tcp, binary=binary) as server:
        yield server


def fake_binary(path: Path, banner: str, otherwise: str = "exit 1") -> Path:
    """A program that prints `banner` when asked for its version, and else runs `otherwise`, a line of shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{banner}"; exit 0; fi\n{otherwise}\n')
    path.chmod(0o700)
    return path
