"""`fold`: what message a stream makes, from any server that speaks the AI SDK's UI message stream.

Rules of this file: it needs no server and no configuration. What a stock client would die on is said, one line each,
and the message is printed all the same.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from runner.core.transcript.chunk import MAX_DEPTH, Chunk, is_deeper, to_bytes
from runner.core.transcript.event_stream import chunks_in
from runner.core.transcript.provider_view import as_json, provider_view
from runner.core.transcript.reducer import Effect, Fold, public
from runner.core.transcript.stored_message import provisional_calls
from runner.core.transcript.wire import Refusal, parse_chunk, refusal_of
from runner.errors import InvalidInput
from runner.process.cli.printing import remark, say

_EVENTS = re.compile(rb"\s*(?:data|event|id|retry)?:")
_REPLAY, _ROUND_TRIP = "resume-replay", "roundtrip"


def run_fold(arguments: Namespace) -> int:
    """Folds a stream, or cases."""
    if arguments.cases:
        with _open(arguments.file) as lines:
            return _run_cases(lines)
    with _open(arguments.file) as file:
        source = file.read()
    fold, refused = Fold(""), 0
    for number, chunk in enumerate(_chunks(source, as_events=arguments.sse), start=1):
        refusal = chunk if isinstance(chunk, Refusal) else fold.apply(chunk).refusal
        if refusal is not None:
            refused += 1
            remark(f"chunk {number} is refused: {refusal.why}{f' ({refusal.detail})' if refusal.detail else ''}")
    message = fold.message()
    shown = as_json(provider_view([message])) if arguments.provider_view else message
    say(json.dumps(json.loads(to_bytes(shown)), indent=None if arguments.json else 2, ensure_ascii=arguments.json))
    return 1 if refused else 0


def folded_case(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to one case: its message, what was refused, what clients are sent, what is provisional."""
    options = case.get("options")
    mode = case.get("mode") or (options.get("mode") if isinstance(options, dict) else None)
    initial = case.get("initial")
    replay = mode == _REPLAY
    fold = Fold("", replay=replay) if initial is None else Fold.of(initial, replay=replay)
    rejected, forward = [], []
    for index, raw in enumerate(case["chunks"]):
        if mode == _ROUND_TRIP and index:
            fold = Fold.of(json.loads(to_bytes(fold.stored())))
        effect = fold.apply(raw) if isinstance(raw, dict) else Effect((), refusal_of(raw))
        forward.append(list(effect.forward))
        if effect.rejected:
            rejected.append(index)
    stored = fold.stored()
    return {
        "id": case.get("id"),
        "message": public(stored),
        "rejected": rejected,
        "forward": forward,
        "provisional": provisional_calls(stored),
    }


def _run_cases(lines: Iterable[bytes]) -> int:
    """Answers each case when its line is there: whoever asks may wait for the answer before the next one."""
    sys.stdout.flush()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            sys.stdout.buffer.write(to_bytes(folded_case(_case(line, number))) + b"\n")
            sys.stdout.buffer.flush()
    return 0


def _case(line: bytes, number: int) -> dict[str, Any]:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as why:
        raise InvalidInput(f"line {number} is no JSON: {why}") from None
    if not isinstance(case, dict) or not isinstance(case.get("chunks"), list):
        raise InvalidInput(f"line {number} is no case: it needs `chunks`, a list")
    if not isinstance(case.get("initial"), (dict, type(None))) or is_deeper(case, 2 * MAX_DEPTH):
        raise InvalidInput(f"line {number}: `initial` must be a message or null, and no value of endless depth")
    return case


@contextmanager
def _open(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        if sys.stdin is None:
            raise InvalidInput("standard input is closed; name a file, or pipe the chunks in")
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as why:
        raise InvalidInput(f"{name} cannot be read: {why.strerror or why}") from None


def _chunks(source: bytes, *, as_events: bool) -> Iterable[Chunk | Refusal]:
    """The chunks of an event stream, or of lines of JSON."""
    if as_events or _EVENTS.match(source.removeprefix(b"\xef\xbb\xbf")):
        return chunks_in([source])
    return _chunks_of_lines(source)


def _chunks_of_lines(source: bytes) -> Iterator[Chunk | Refusal]:
    """A line holds a chunk, a list of chunks, or what `runner tail --json` prints."""
    for line in source.split(b"\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            yield parse_chunk(line)
            continue
        match value:
            case {"terminal": _} if "type" not in value:
                continue
            case {"chunk": chunk} if "type" not in value:
                yield parse_chunk(json.dumps(chunk))
            case list():
                yield from (parse_chunk(json.dumps(item)) for item in value)
            case _:
                yield parse_chunk(line)
