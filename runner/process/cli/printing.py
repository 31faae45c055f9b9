"""How the command line speaks: plain words and tables for people, one JSON value a line for programs.

Rules of this file: results go to standard output, everything about them to standard error; every line is flushed when
it is written; text that others wrote cannot steer a terminal.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

_CONTROL = dict.fromkeys([*range(32), *range(127, 160)], "\ufffd")
_CONTROL |= {ord("\n"): "\n", ord("\t"): "\t", ord("\r"): ""}


def set_up_output() -> None:
    """Makes standard output take any text: what a terminal cannot show is replaced."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str = "", *, end: str = "\n") -> None:
    """A result, in words."""
    print(printable(text), end=end, flush=True)


def say_json(value: Any) -> None:
    """A result, as one line of JSON."""
    print(json.dumps(value, default=str), flush=True)


def remark(text: str) -> None:
    """A word to the person at the terminal that is no part of the result."""
    print(printable(text), file=sys.stderr, flush=True)


def report(error: Exception, *, as_json: bool) -> None:
    """An error on one line: in words, or as a JSON object with its facts."""
    message = " ".join(str(error).split())
    if as_json:
        facts = {name: value for name, value in vars(error).items() if not name.startswith("_")}
        print(
            json.dumps({"error": {"type": type(error).__name__, "message": message, **facts}}, default=str),
            file=sys.stderr,
        )
    else:
        remark(f"error: {message}")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def duration(ms: float) -> str:
    """A length of time in words: `850 ms`, `12.3 s`, `4 min 10 s`, `3 h 20 min`, `2 d 4 h`."""
    if abs(ms) < 1_000:
        return f"{ms:.0f} ms"
    if abs(ms) < 60_000:
        return f"{ms / 1_000:.1f} s"
    seconds = round(ms / 1_000)
    for large, small, names in ((86_400, 3_600, "d h"), (3_600, 60, "h min"), (60, 1, "min s")):
        if seconds >= large:
            first, second = names.split()
            return f"{seconds // large} {first} {seconds % large // small} {second}"
    return f"{seconds} s"


def printable(text: str) -> str:
    """`text` without characters that would steer a terminal."""
    return text.translate(_CONTROL)


def leave_output() -> None:
    """Points standard output nowhere, because its reader is gone: the flush at exit then has nothing to complain of."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
