"""What calls answer, as types.

Rules of this file: data only. A refusal that is an expected ending of an act is a `Code`, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from runner.core.transcript.chunk import Chunk
from runner.store.records import RunRecord, Terminal


class Code(IntEnum):
    """How an act answered; the same numbers as in the prelude."""

    OK = 0
    FENCED = 1
    CANCELLED = 2
    TERMINAL = 3
    GAP = 4
    UNKNOWN = 5
    TAKEN = 6
    CONFLICT = 7


@dataclass(frozen=True, slots=True)
class Answer:
    """A code, and the last seq of the run where the act tells it."""

    code: Code
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Created:
    """OK: recorded. TAKEN: the key already stands for `run_id`. CONFLICT: for `run_id` with another payload."""

    code: Code
    run_id: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """OK with the record as of the claim; or why there is nothing to do."""

    code: Code
    record: RunRecord | None = None


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """Where the run was when the flag was set; TERMINAL when it had ended, UNKNOWN when there is none."""

    code: Code
    state: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """What one partition has due, and the server's clock."""

    now_ms: int
    fresh_from_ms: int
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One stream entry: the chunks up to and including `last_seq`, or the terminal."""

    last_seq: int
    epoch: int
    chunks: tuple[Chunk, ...] = ()
    terminal: Terminal | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks to append: encoded as one JSON array, first and last seq, how many are credited as progress."""

    first_seq: int
    last_seq: int
    body: bytes
    credits: int


def pairs(flat: Any) -> dict[bytes, bytes]:
    """A hash or an entry's fields, however the protocol version wraps them."""
    if isinstance(flat, dict):
        return flat
    return dict(zip(flat[::2], flat[1::2], strict=True))
