"""The keeper: one small process beside each embedded server, which stops it when nobody uses it any more.

Rules of this file: run as a script by path (`python -I -S server_keeper.py PLAN`), so it imports the standard library
only; it is detached from its starter; it never deletes data. The files and locks of a data directory are defined here,
because the keeper and `embedded` must agree on them. All locks are `flock`s: the kernel drops them however their holder
dies.

    server.lock  exclusive, inherited by the server and closed everywhere else: held as long as the server lives
    keeper.lock  exclusive, the keeper's for life; taken before server.lock, so that only one keeper starts a server
    users.lock   shared by the users (and their forked children); exclusive by the keeper while it stops the server
    server.json  who serves: `State`; a hint that is believed only while server.lock is held
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

SERVER_LOCK = "server.lock"
KEEPER_LOCK = "keeper.lock"
USERS_LOCK = "users.lock"
STATE = "server.json"
LOG = "server.log"

BUSY = b"busy\n"
"""Printed when another keeper or server has the directory."""
STARTED = b"started\n"
"""Printed when this keeper's own server is running and server.json names it. Nothing else is ever printed."""

_STOP_GRACE_S = 10.0


class State(TypedDict):
    """What server.json holds. `port` is None for a server that listens on its unix socket only."""

    pid: int
    keeper_pid: int
    socket: str
    port: int | None
    product: str
    version: str


class Plan(TypedDict):
    """The keeper's only argument, as JSON. `argv` is None to watch the server that already runs as `state`."""

    directory: str
    argv: list[str] | None
    linger_s: float | None
    state: State


def open_lock(directory: str, name: str) -> int:
    """Descriptor of a lock file of the directory, created when missing, not yet locked, closed on exec."""
    return os.open(Path(directory, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(directory: str, name: str, mode: int) -> int | None:
    """Descriptor that holds the lock in `mode`, or None when somebody else's lock forbids it. Never waits."""
    fd = open_lock(directory, name)
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def read_state(directory: str) -> State | None:
    """The last state written, or None when there is none that can be read."""
    try:
        state: State = json.loads(Path(directory, STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state


def main() -> None:
    """Detaches, takes the directory, starts the server (or adopts the running one), and stays until it is gone."""
    if os.fork():
        os._exit(0)  # the starter reaps this half; the other half is nobody's child
    plan: Plan = json.loads(sys.argv[1])
    directory = plan["directory"]
    if try_lock(directory, KEEPER_LOCK, fcntl.LOCK_EX) is None:
        _report(BUSY)
    elif plan["argv"] is None:
        _watch(plan, plan["state"]["pid"], lambda: _wait_for_lock(directory))
    elif (lock := try_lock(directory, SERVER_LOCK, fcntl.LOCK_EX)) is None:
        _report(BUSY)
    else:
        server = _start(directory, plan["argv"], lock)
        _write_state(directory, {**plan["state"], "pid": server.pid, "keeper_pid": os.getpid()})
        _report(STARTED)
        _watch(plan, server.pid, server.wait)


def _report(word: bytes) -> None:
    with suppress(BrokenPipeError):  # the starter may be gone; the server has its keeper all the same
        os.write(sys.stdout.fileno(), word)


def _start(directory: str, argv: list[str], lock: int) -> subprocess.Popen[bytes]:
    """Starts the server with the lock in its hands alone, in a session of its own: a Ctrl-C is not meant for it."""
    with Path(directory, LOG).open("ab") as log:
        server = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(lock,),
            start_new_session=True,
            cwd=directory,
            umask=0o077,
        )
    os.close(lock)
    return server


def _write_state(directory: str, state: State) -> None:
    draft = Path(directory, f"{STATE}.draft")
    draft.write_text(json.dumps(state), encoding="utf-8")
    draft.replace(Path(directory, STATE))


def _wait_for_lock(directory: str) -> None:
    fcntl.flock(open_lock(directory, SERVER_LOCK), fcntl.LOCK_EX)


def _watch(plan: Plan, pid: int, until_gone: Callable[[], object]) -> None:
    """Returns when the server is gone. A SIGTERM to the keeper is passed on to the server."""
    signal.signal(signal.SIGTERM, lambda *_: _signal(pid, signal.SIGTERM))
    if (linger_s := plan["linger_s"]) is not None:
        args = (plan["directory"], pid, linger_s)
        threading.Thread(target=_stop_when_unused, args=args, daemon=True).start()
    until_gone()


def _stop_when_unused(directory: str, pid: int, linger_s: float) -> None:
    """Holds users.lock from the decision to stop until the server is gone: a newcomer waits and starts a fresh one."""
    users = open_lock(directory, USERS_LOCK)
    _wait_until_unused(users, linger_s)
    _signal(pid, signal.SIGTERM)
    time.sleep(_STOP_GRACE_S)
    _signal(pid, signal.SIGKILL)


def _wait_until_unused(users: int, linger_s: float) -> None:
    """Returns holding the lock exclusively, when nobody has joined for `linger_s` seconds since the last user left."""
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        last_joined = os.fstat(users).st_mtime_ns
        if linger_s == 0:
            return
        fcntl.flock(users, fcntl.LOCK_UN)
        time.sleep(linger_s)
        with suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(users).st_mtime_ns == last_joined:
                return


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    main()
    os._exit(0)  # the watching thread waits for a lock and must not delay the end
