"""The corpus of streams, and how values of two languages are compared."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from runner.core.transcript.chunk import to_bytes
from runner.core.transcript.reducer import Fold

Case = dict[str, Any]

DATA = Path(__file__).parent / "data"
CATEGORIES = sorted(path.stem for path in (DATA / "corpus").glob("*.jsonl"))
REPLAY = "resume-replay"


@cache
def cases(category: str) -> tuple[Case, ...]:
    """The cases of a category."""
    lines = (DATA / "corpus" / f"{category}.jsonl").read_text(encoding="utf-8").strip().split("\n")
    return tuple(map(json.loads, lines))


def vectors(name: str) -> list[Case]:
    """The recorded calls of one helper."""
    lines = (DATA / "vectors" / f"{name}.jsonl").read_text(encoding="utf-8").strip().split("\n")
    return list(map(json.loads, lines))


def mode_of(case: Case) -> str | None:
    """The mode that a case must be folded in."""
    mode: str | None = (case["options"] or {}).get("mode")
    return mode


def fold_of(case: Case) -> Fold:
    """The fold before the first chunk of a case."""
    replay = mode_of(case) == REPLAY
    return Fold("", replay=replay) if case["initial"] is None else Fold.of(case["initial"], replay=replay)


def as_json(value: Any) -> Any:
    """A value as JSON has it, its numbers as doubles."""
    return json.loads(to_bytes(value), parse_int=float)


def unseen(message: Any, call_ids: list[str]) -> Any:
    """The message without the inputs of these calls."""
    hidden = set(call_ids)
    parts = [
        {key: value for key, value in part.items() if key != "input"} if part.get("toolCallId") in hidden else part
        for part in message["parts"]
    ]
    return {**message, "parts": parts}
