"""Chunks: the units of a stream, as JSON objects with a `type`.

Rules of this file: the vocabulary is the AI SDK UI message stream, protocol v1; control facts travel as `data-*`.
Unknown types and fields are kept as they are. Encoding is the same bytes for the same chunk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

Chunk = dict[str, Any]

MAX_DEPTH = 100
"""Levels of nesting in a chunk at most: whoever folds it later stands on a stack of unknown depth."""


def start(message_id: str) -> Chunk:
    """Opens the message of a run; the first chunk of its stream."""
    return {"type": "start", "messageId": message_id}


def start_step() -> Chunk:
    """Opens a step."""
    return {"type": "start-step"}


def finish_step() -> Chunk:
    """Closes a step."""
    return {"type": "finish-step"}


def reset_step() -> Chunk:
    """Drops the parts of the unfinished step."""
    return {"type": "reset-step"}


def finish(reason: str) -> Chunk:
    """Closes the message; the last chunk of a completed stream."""
    return {"type": "finish", "finishReason": reason}


def abort() -> Chunk:
    """Closes the message of a cancelled run."""
    return {"type": "abort"}


def error(text: str) -> Chunk:
    """Closes the message of a run that failed or was given up."""
    return {"type": "error", "errorText": text}


def encode(chunk: Chunk) -> bytes:
    """A chunk as compact UTF-8 JSON. ValueError for what is no JSON or is nested deeper than MAX_DEPTH."""
    encoded = to_bytes(chunk)
    if encoded.count(b"[") + encoded.count(b"{") > MAX_DEPTH and is_deeper(json.loads(encoded), MAX_DEPTH):
        raise ValueError(f"a chunk may be nested {MAX_DEPTH} levels deep, this one is deeper")
    return encoded


def to_bytes(value: Any) -> bytes:
    """A value as compact UTF-8 JSON: half a surrogate pair is kept as its escape, NaN and infinity become null.

    ValueError for what is no JSON.
    """
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        pass
    try:
        return json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, RecursionError) as why:
        raise ValueError(str(why)) from None


def join(encoded: Sequence[bytes]) -> bytes:
    """Encoded chunks as the JSON array that one stream entry holds."""
    return b"[" + b",".join(encoded) + b"]"


def decode_batch(batch: bytes) -> list[Chunk]:
    """The chunks of one stream entry."""
    chunks: list[Chunk] = json.loads(batch)
    return chunks


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested in it more than `levels` deep."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        return False
    return levels == 0 or any(is_deeper(item, levels - 1) for item in inner)


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
