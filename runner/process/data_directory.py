"""The data directory of an embedded server: its privacy, its socket's place, its locks.

Rules of this file: nothing is deleted, and nothing is closed to others that was not made for the server alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from runner import errors
from runner.process import server_keeper as keeper

_LONGEST_SOCKET_PATH = 100  # bytes; the kernels' limits are 104 (macOS) and 108 (Linux)


def private_directory(path: Path) -> Path:
    """The directory, made when missing, with access for its owner alone.

    A directory that was open to others is closed to them only if it is empty or already ours: closing, say, /tmp would
    break the machine.
    """
    try:
        path.expanduser().mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = path.expanduser().resolve()
        if directory.stat().st_mode & 0o077:
            if any(directory.iterdir()) and not (directory / keeper.SERVER_LOCK).exists():
                raise errors.InvalidInput(
                    f"data directory {path} holds other files and is open to other users; name one for the server alone"
                )
            directory.chmod(0o700)
        os.close(keeper.open_lock(str(directory), keeper.SERVER_LOCK))
    except OSError as why:
        raise errors.InvalidInput(f"data directory {path} cannot be used ({why}); name one you may write to") from why
    return directory


def socket_path(directory: Path) -> str:
    """In the data directory when the kernel can take so long a name, else in a short private directory.

    The short name is derived from the long one, so that clients find a restarted server where it was.
    """
    if len(os.fsencode(path := directory / "server.sock")) <= _LONGEST_SOCKET_PATH:
        return str(path)
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    for root in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 - used as a private directory only
        path = Path(root) / f"turnrunner-{os.geteuid()}-{digest}" / "server.sock"
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH and _is_ours(path.parent):
            return str(path)
    raise errors.InvalidInput(f"no short name for the socket of {directory} can be had; name a shorter data directory")


def _is_ours(directory: Path) -> bool:
    """Makes the directory when missing. False when it is somebody else's, a link, or open to others."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    return private and status.st_uid == os.geteuid()


def is_held(directory: Path, name: str) -> bool:
    """Whether somebody holds that lock of the directory exclusively."""
    fd = keeper.try_lock(str(directory), name, fcntl.LOCK_SH)
    if fd is None:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would leave the lock to a child forked meanwhile
    os.close(fd)
    return False
