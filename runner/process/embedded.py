"""The embedded server: one real Redis or Valkey per data directory, started by whoever comes first.

Rules of this file:
1. One data directory, one server. The first caller starts it, later callers attach, from any process of the machine.
2. Nobody owns the server. Every user holds a shared lease on the directory, which the kernel drops however the
   process ends. Children made by fork share their parent's lease; programs started by exec ask for their own.
3. The keeper (`server_keeper`) stops the server when no lease has been held for the linger period. So killing any user
   neither orphans the server for ever nor takes it away from the others. Should the keeper itself be killed, the next
   caller puts a new one beside the running server.
4. `EmbeddedServer.stop` stops the server at once, for everybody.
5. Nothing here deletes data. There is no exit hook: a forked child that leaves through `sys.exit` changes nothing.
6. Data is appended to a log that is synced every second: killed processes lose nothing acknowledged, a power cut may
   lose the last second or two.

The directory must be on a local file system (the locks are `flock`s) and is readable by its owner alone. A server that
was asked for a TCP port listens on loopback without a password, which every user of the machine can reach.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from runner import errors
from runner.process import server_keeper as keeper
from runner.process.data_directory import is_held, private_directory, socket_path
from runner.process.server_binary import Binary, find_binary

LINGER_S = 10.0
_POLL_S = 0.01
_PROBE_TIMEOUT_S = 1.0
_KILL_WAIT_S = 5.0
_PORT_TRIES = 5


@dataclass
class EmbeddedServer:
    """A running server and this caller's lease on it. Leaving the `with` block gives up the lease, no more."""

    data_dir: Path
    url: str
    pid: int
    port: int | None
    attached: bool
    """False when this call started the server."""
    _lease: int | None = field(repr=False)

    def close(self) -> None:
        """Gives up the lease. The server goes on for other users, and for the linger period without any."""
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stops the server for everybody, keeping its data, and returns when it is gone.

        After `timeout_s` seconds it is killed. A newer server on the same directory is left alone. Raises
        `ServerError` when it survives even that.
        """
        if not self._end(signal.SIGTERM, timeout_s) and not self._end(signal.SIGKILL, _KILL_WAIT_S):
            raise errors.ServerError(f"server {self.pid} on {self.data_dir} cannot be stopped; see {keeper.LOG} there")
        self.close()

    def _end(self, number: signal.Signals, timeout_s: float) -> bool:
        if not self._gone():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
        deadline = time.monotonic() + timeout_s
        while not (gone := self._gone()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return gone

    def _gone(self) -> bool:
        if not is_held(self.data_dir, keeper.SERVER_LOCK) and not is_held(self.data_dir, keeper.KEEPER_LOCK):
            return True
        state = keeper.read_state(str(self.data_dir))
        return state is not None and state["pid"] != self.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def start_or_attach(
    data_dir: Path,
    *,
    configured_binary: str | None = None,
    port: int | None = None,
    timeout_s: float = 10.0,
    linger_s: float | None = LINGER_S,
) -> EmbeddedServer:
    """The server of that directory, started when none runs; returns when it answers.

    `port`: None serves a unix socket only, 0 also a free loopback port, else that loopback port; the URL names what was
    asked for. `linger_s`: how long an unused server stays, 0 stops it at once, None leaves it running; the starter's
    choice holds. Blocks up to `timeout_s` seconds.

    Raises `InvalidInput` (a directory or value that cannot be used), `NoServerBinary`, `ServerTooOld`, and
    `ServerStartFailed` when the server dies, does not answer in time, or has another port than asked for.
    """
    wish = _Wish(
        directory=private_directory(Path(data_dir)),
        configured_binary=configured_binary,
        port=_valid_port(port),
        linger_s=_valid_linger(linger_s),
        timeout_s=timeout_s,
        deadline=time.monotonic() + timeout_s,
    )
    lease = _join(wish)
    try:
        return _reach(wish, lease)
    except BaseException:
        os.close(lease)
        raise


@dataclass(frozen=True)
class _Wish:
    """What a caller asked for."""

    directory: Path
    configured_binary: str | None
    port: int | None
    linger_s: float | None
    timeout_s: float
    deadline: float

    def pause(self, why: str) -> None:
        """Waits a moment; at the deadline raises `ServerStartFailed` with `why`."""
        if time.monotonic() >= self.deadline:
            log = self.directory / keeper.LOG
            raise errors.ServerStartFailed(
                f"of {self.directory}",
                f"no use of it within {self.timeout_s:g} s: {why}; see {log}, or wait longer",
            )
        time.sleep(_POLL_S)


def _join(wish: _Wish) -> int:
    """Takes the lease before anything is asked about the server, so that the keeper cannot stop it in between."""
    while (lease := keeper.try_lock(str(wish.directory), keeper.USERS_LOCK, fcntl.LOCK_SH)) is None:
        wish.pause("the unused server is being stopped and has not ended")
    os.utime(lease)  # the keeper sees by the time stamp that somebody joined
    return lease


def _reach(wish: _Wish, lease: int) -> EmbeddedServer:
    attached = True
    while True:
        why = "another process is starting it"
        if is_held(wish.directory, keeper.SERVER_LOCK):
            state = keeper.read_state(str(wish.directory))
            trouble = _trouble(state)
            if state is not None and trouble is None:
                _replace_lost_keeper(wish, state)
                return _served(wish, state, lease, attached=attached)
            why = trouble or why
        elif not is_held(wish.directory, keeper.KEEPER_LOCK) and _start(wish):
            attached = False
            continue
        wish.pause(why)


def _served(wish: _Wish, state: keeper.State, lease: int, *, attached: bool) -> EmbeddedServer:
    port = state["port"]
    if wish.port is not None and (port is None or wish.port not in {0, port}):
        where = "its unix socket only" if port is None else f"port {port}"
        raise errors.ServerStartFailed(
            f"of {wish.directory}",
            f"it already runs and listens on {where}; use that, or stop it (pid {state['pid']}) first",
        )
    url = f"unix://{quote(state['socket'])}" if wish.port is None else f"redis://127.0.0.1:{port}/0"
    return EmbeddedServer(wish.directory, url, state["pid"], port, attached, lease)


# Starting


def _start(wish: _Wish) -> bool:
    """Starts the server and waits for its answer. False when another process was faster."""
    binary = find_binary(wish.configured_binary)
    for last in (False,) * (_PORT_TRIES - 1) + (True,):
        port = free_port() if wish.port == 0 else wish.port
        try:
            return _start_on(wish, binary, port)
        except errors.ServerStartFailed as failure:
            # Between choosing a free port and listening on it, somebody else may have taken it.
            if last or wish.port != 0 or "in use" not in failure.why:
                raise
    raise AssertionError("the last try returns or raises")


def _start_on(wish: _Wish, binary: Binary, port: int | None) -> bool:
    log = wish.directory / keeper.LOG
    log_start = log.stat().st_size if log.exists() else 0
    path = socket_path(wish.directory)
    pipe = _launch_keeper(wish, _plan(wish, binary, path, port))
    try:
        said, started = _read_now(pipe), False
        while said != keeper.BUSY:
            if said == b"":
                raise errors.ServerStartFailed(str(binary.path), _log_tail(log, log_start))
            started = started or said == keeper.STARTED
            # An answer before our keeper's word would be that of a server somebody else has just started.
            trouble = _trouble(keeper.read_state(str(wish.directory))) if started else "its keeper is starting it"
            if trouble is None:
                return True
            wish.pause(trouble)
            said = _read_now(pipe)
        return False
    finally:
        os.close(pipe)


def _plan(wish: _Wish, binary: Binary, path: str, port: int | None) -> keeper.Plan:
    options = {
        "dir": str(wish.directory),
        "bind": "127.0.0.1",
        "port": str(port or 0),
        "unixsocket": path,
        "unixsocketperm": "700",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return keeper.Plan(
        directory=str(wish.directory),
        argv=[
            str(binary.path),
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ],
        linger_s=wish.linger_s,
        state=keeper.State(
            pid=0,
            keeper_pid=0,
            socket=path,
            port=port,
            product=binary.product,
            version=binary.version,
        ),
    )


def _launch_keeper(wish: _Wish, plan: keeper.Plan) -> int:
    """Starts a detached keeper. Returns the reading end of its output, which ends when the keeper does."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    script = Path(keeper.__file__).resolve()
    try:
        with (wish.directory / keeper.LOG).open("ab") as log:
            subprocess.run(
                [sys.executable, "-I", "-S", script, json.dumps(plan)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=log,
                start_new_session=True,
                cwd="/",
                check=True,
            )
    except (OSError, subprocess.CalledProcessError) as why:
        os.close(reading)
        raise errors.ServerStartFailed(f"of {wish.directory}", f"its keeper cannot be run: {why}") from why
    finally:
        os.close(writing)
    return reading


def _replace_lost_keeper(wish: _Wish, state: keeper.State) -> None:
    if not is_held(wish.directory, keeper.KEEPER_LOCK):
        os.close(
            _launch_keeper(
                wish,
                keeper.Plan(
                    directory=str(wish.directory),
                    argv=None,
                    linger_s=wish.linger_s,
                    state=state,
                ),
            )
        )


def free_port() -> int:
    """A loopback TCP port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


# Looking


def _trouble(state: keeper.State | None) -> str | None:
    """Why the server described by `state` cannot be used now; None when it answers and is that very process."""
    if state is None:
        return f"it has not written {keeper.STATE} yet"
    try:
        ping, info = _converse(state["socket"], b"PING", b"INFO server")
    except (OSError, EOFError) as why:
        return f"pid {state['pid']} does not answer ({why or type(why).__name__})"
    if ping != b"+PONG":
        return f"pid {state['pid']} answers {ping.decode(errors='replace')}"
    if f"process_id:{state['pid']}\r\n".encode() not in info:
        return "another server has just taken its place"
    return None


def _converse(path: str, *commands: bytes) -> tuple[bytes, bytes]:
    """First line and the rest of the answers. The server closes the connection, at our request, when all is said."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(_PROBE_TIMEOUT_S)
        link.connect(path)
        link.sendall(b"".join(command + b"\r\n" for command in (*commands, b"QUIT")))
        answer = b""
        while part := link.recv(65536):
            answer += part
    first, separator, rest = answer.partition(b"\r\n")
    if not separator:
        raise EOFError("connection closed")
    return first, rest


def _read_now(pipe: int) -> bytes | None:
    """What the keeper said; b"" when it has ended, None when it lives and is silent."""
    try:
        return os.read(pipe, 64)
    except BlockingIOError:
        return None


def _log_tail(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return " | ".join(lines[-4:]) or f"it ended without a word; see {log}"


def _valid_port(port: int | None) -> int | None:
    if port is not None and not 0 <= port <= 65535:
        raise errors.InvalidInput(f"no port {port}; give 1 to 65535, 0 for a free one, or None for a unix socket")
    return port


def _valid_linger(linger_s: float | None) -> float | None:
    if linger_s is None or linger_s == math.inf:
        return None
    if not linger_s >= 0:
        raise errors.InvalidInput(f"linger of {linger_s} s is not a duration; give 0 or more, or None to leave it on")
    return linger_s
