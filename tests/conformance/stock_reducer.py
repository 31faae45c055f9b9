"""The AI SDK's own reducer in node, over its own wire.

Rule of this file: the package is installed once beside the environment's own packages; where that cannot be done, the
test is skipped with the reason (and fails where the mark `node` is required).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runner.core.transcript.chunk import to_bytes

PACKAGE = "ai@7.0.173"
PLACE = Path(sys.prefix) / "share" / "turnrunner-tests" / PACKAGE
SCRIPT = Path(__file__).with_name("fold_forward.mjs")
INSTALL_S, END_S = 300, 30


class StockReducer:
    """A node process that answers one question after the other; see fold_forward.mjs."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(SCRIPT), str(PLACE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(to_bytes(question) + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=END_S)


@contextmanager
def stock_reducer() -> Iterator[StockReducer]:
    """The reducer for the length of a `with` block; skips the test where it cannot be installed."""
    problem = _install()
    if problem:
        pytest.skip(problem)
    reducer = StockReducer()
    try:
        yield reducer
    finally:
        reducer.close()


@cache
def _install() -> str:
    """Installs the package; returns what stood in the way, or nothing."""
    if (PLACE / "node_modules" / "ai").is_dir():
        return ""
    try:
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=PLACE.parent))
        words = ["npm", "install", "--prefix", str(fresh), "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
        finished = subprocess.run(words, capture_output=True, timeout=INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"npm could not install {PACKAGE}: {why}"
    if finished.returncode == 0:
        try:
            fresh.rename(PLACE)  # at once: another test process may install it too
            return ""
        except OSError:
            pass
    shutil.rmtree(fresh, ignore_errors=True)
    is_there = (PLACE / "node_modules" / "ai").is_dir()
    return "" if is_there else f"npm could not install {PACKAGE}: {finished.stderr.decode()[-300:]}"
