"""Chunks from outside: which ones a stock client takes, and why the others are refused.

Rules of this file: the table is the AI SDK's wire schema. Extra keys are allowed and kept; a required key may be null
only where any value is allowed; an optional key is left out and never null. Whatever is given, the answer is a value:
nothing here raises, and nothing it gives is larger than what it was given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runner.core.transcript.chunk import MAX_DEPTH, Chunk
from runner.core.transcript.partial_json import has_forbidden_key, parse_json

FINISH_REASONS = frozenset({"stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other"})


class Why(StrEnum):
    """Why a chunk is refused."""

    NOT_JSON = "not-json"
    NOT_AN_OBJECT = "not-an-object"
    UNKNOWN_TYPE = "unknown-type"
    MISSING_FIELD = "missing-field"
    WRONG_VALUE = "wrong-value"
    FORBIDDEN_KEY = "forbidden-key"
    TOO_DEEP = "too-deep"
    UNFITTING = "unfitting"
    """Well-formed, but it speaks of something that is not there: an id that is not open, an unknown call."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a chunk is ignored; `detail` names the field or the type it is about."""

    why: Why
    detail: str = ""


def parse_chunk(raw: bytes | str | object) -> Chunk | Refusal:
    """The chunk that `raw` is: JSON text, its UTF-8 bytes, or the value itself, which is not copied. Never raises."""
    if isinstance(raw, (bytes, bytearray, memoryview)):
        try:
            raw = bytes(raw).decode()
        except UnicodeDecodeError:
            return Refusal(Why.NOT_JSON, "not UTF-8")
    if isinstance(raw, str):
        try:
            raw = parse_json(raw)
        except ValueError as why:
            return Refusal(Why.NOT_JSON, str(why))
    if not isinstance(raw, dict):
        return Refusal(Why.NOT_AN_OBJECT)
    return refusal_of(raw) or raw


def refusal_of(chunk: Any) -> Refusal | None:
    """Why no client takes the chunk; None when clients do."""
    if not isinstance(chunk, dict):
        return Refusal(Why.NOT_AN_OBJECT)
    kind = chunk.get("type")
    fields = fields_of(kind)
    if fields is None:
        return Refusal(Why.UNKNOWN_TYPE, kind[:_SHOWN] if isinstance(kind, str) else "")
    if (refused := _refused_value(chunk)) is not None:  # first: from here on it is JSON of a depth that is known
        return refused
    for name, required, fits in fields:
        if name not in chunk:
            if required:
                return Refusal(Why.MISSING_FIELD, name)
        elif not fits(chunk[name]):
            return Refusal(Why.WRONG_VALUE, name)
    return None


def fields_of(kind: object) -> tuple[Field, ...] | None:
    """The fields of a chunk type, or None for a type that nobody knows."""
    if not isinstance(kind, str):
        return None
    return _FIELDS.get(kind) or (_DATA if kind.startswith("data-") else None)


def _refused_value(chunk: Chunk) -> Refusal | None:
    """What is wrong with any value in it: all must be JSON, not too deep, and without forbidden keys."""
    suspect = False
    level: list[Any] = [chunk]
    for _ in range(MAX_DEPTH):
        inner: dict[int, Any] = {}  # by identity: a value that holds itself twice would be a tree without end
        for node in level:
            if isinstance(node, dict):
                for key in node:
                    if not isinstance(key, str):
                        return Refusal(Why.NOT_JSON, "a key that is no text")
                suspect = suspect or "__proto__" in node or "constructor" in node
            for item in node.values() if isinstance(node, dict) else node:
                if isinstance(item, (dict, list)):
                    inner[id(item)] = item
                elif not isinstance(item, _SCALARS):
                    return Refusal(Why.NOT_JSON, type(item).__name__)
        if not inner:
            return Refusal(Why.FORBIDDEN_KEY) if suspect and has_forbidden_key(chunk) else None
        level = list(inner.values())
    return Refusal(Why.TOO_DEEP)


_SHOWN = 100
_SCALARS = (str, int, float, bool, type(None))


def _any(_: Any) -> bool:
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _encoding(value: Any) -> bool:
    return value in ("json", "text")


def _finish_reason(value: Any) -> bool:
    return isinstance(value, str) and value in FINISH_REASONS


def _json_object(value: Any) -> bool:
    """An object whose numbers are all finite."""
    return isinstance(value, dict) and _is_finite(value)


def _provider_metadata(value: Any) -> bool:
    return isinstance(value, dict) and all(_json_object(inner) for inner in value.values())


def _is_finite(value: Any) -> bool:
    left = [value]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)
        elif isinstance(node, float) and not math.isfinite(node):
            return False
    return True


def _index(value: Any) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**53 and value == int(value)
    )


Field = tuple[str, bool, Callable[[Any], bool]]


def _required(*names: str, fits: Callable[[Any], bool] = _text) -> tuple[Field, ...]:
    return tuple((name, True, fits) for name in names)


def _optional(*names: str, fits: Callable[[Any], bool] = _text) -> tuple[Field, ...]:
    return tuple((name, False, fits) for name in names)


_METADATA = _optional("providerMetadata", fits=_provider_metadata)
_BY_PROVIDER = (*_optional("providerExecuted", fits=_flag), *_METADATA)
_OF_TOOL = (*_BY_PROVIDER, *_optional("toolMetadata", fits=_json_object), *_optional("dynamic", fits=_flag))
_CALL = (*_required("toolCallId", "toolName"), *_OF_TOOL, *_optional("title"))
_FILE = _required("url", "mediaType")
_URL_SOURCE = (*_required("url"), *_optional("title"))
_DOCUMENT_SOURCE = (*_required("mediaType", "title"), *_optional("filename"))


def _fits_all(value: Any, fields: tuple[Field, ...]) -> bool:
    return isinstance(value, dict) and all(
        fits(value[name]) if name in value else not required for name, required, fits in fields
    )


def _one_of(kinds: Mapping[str, tuple[Field, ...]], by: str) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        fields = kinds.get(value[by]) if isinstance(value, dict) and isinstance(value.get(by), str) else None
        return fields is not None and _fits_all(value, fields)

    return fits


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


_SOURCE = _one_of(
    {
        "url": (("type", True, lambda value: value == "source"), *_required("id"), *_URL_SOURCE, *_METADATA),
        "document": (("type", True, lambda value: value == "source"), *_required("id"), *_DOCUMENT_SOURCE, *_METADATA),
    },
    "sourceType",
)
_CITATION: tuple[Field, ...] = (
    ("source", True, _SOURCE),
    *_optional("startIndex", "endIndex", fits=_index),
    *_optional("citedText"),
)
_REFERENCE: Field = (
    "providerReference",
    False,
    lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
)
_STEERED = _one_of(
    {
        "text": (*_required("text"), *_METADATA),
        "file": (*_FILE, *_optional("filename"), _REFERENCE, *_METADATA),
    },
    "type",
)

_DATA: tuple[Field, ...] = (
    *_optional("id"),
    *_required("data", fits=_any),
    *_optional("transient", fits=_flag),
)

_TYPE: Field = ("type", True, _text)  # so that a type without fields has a row too

_FIELDS: Mapping[str, tuple[Field, ...]] = {
    "start": (*_optional("messageId"), *_optional("messageMetadata", fits=_any)),
    "start-step": (_TYPE,),
    "finish-step": (_TYPE,),
    "reset-step": (_TYPE,),
    "text-start": (*_required("id"), *_METADATA),
    "text-delta": (*_required("id", "delta"), *_METADATA),
    "text-end": (
        *_required("id"),
        *_optional("citations", fits=_list_of(lambda value: _fits_all(value, _CITATION))),
        *_METADATA,
    ),
    "reasoning-start": (*_required("id"), *_METADATA),
    "reasoning-delta": (*_required("id", "delta"), *_METADATA),
    "reasoning-end": (*_required("id"), *_METADATA),
    "tool-input-start": (*_CALL, *_optional("inputEncoding", fits=_encoding)),
    "tool-input-delta": _required("toolCallId", "inputTextDelta"),
    "tool-input-available": (*_CALL, *_required("input", fits=_any)),
    "tool-input-error": (*_CALL, *_required("input", fits=_any), *_required("errorText")),
    "tool-approval-request": (
        *_required("approvalId", "toolCallId"),
        *_optional("approvalDescriptor", "inputSchemaInput", fits=_any),
        *_optional("reason", "signature"),
        *_optional("isAutomatic", fits=_flag),
    ),
    "tool-approval-response": (
        *_required("approvalId"),
        *_required("approved", fits=_flag),
        *_optional("reason"),
        *_BY_PROVIDER,
    ),
    "tool-output-available": (
        *_required("toolCallId"),
        *_required("output", fits=_any),
        *_OF_TOOL,
        *_optional("preliminary", fits=_flag),
    ),
    "tool-output-error": (*_required("toolCallId", "errorText"), *_OF_TOOL),
    "tool-output-denied": _required("toolCallId"),
    "source-url": (*_required("sourceId"), *_URL_SOURCE, *_METADATA),
    "source-document": (*_required("sourceId"), *_DOCUMENT_SOURCE, *_METADATA),
    "file": (*_FILE, *_METADATA),
    "reasoning-file": (*_FILE, *_METADATA),
    "custom": (*_required("kind"), *_METADATA),
    "steering-message": (*_required("id"), ("parts", True, _list_of(_STEERED))),
    "message-metadata": _required("messageMetadata", fits=_any),
    "finish": (*_optional("finishReason", fits=_finish_reason), *_optional("messageMetadata", fits=_any)),
    "abort": _optional("reason"),
    "error": _required("errorText"),
}
