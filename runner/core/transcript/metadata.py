"""Message metadata: how what comes later is laid over what is there.

Rules of this file: as the AI SDK does it. Objects are merged key by key, anything else is replaced, null included; keys
that would reach into JavaScript's prototypes are passed over. Nothing given is changed.
"""

from __future__ import annotations

from typing import Any

_RESERVED = frozenset({"__proto__", "constructor", "prototype"})


class Unmergeable(Exception):
    """There is a value that has no keys, and keys are to be laid over it."""


def merged(base: Any, overrides: Any) -> Any:
    """`overrides` laid over `base`; neither is None. A list or a text counts as an object of its items by their index.
    Raises Unmergeable."""
    changes = {key: value for key, value in _keyed(overrides).items() if key not in _RESERVED}
    if changes and not isinstance(base, (dict, list)):
        raise Unmergeable
    result = _keyed(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def _keyed(value: Any) -> dict[str, Any]:
    match value:
        case dict():
            return dict(value)
        case list():
            return {str(index): item for index, item in enumerate(value)}
        case str():
            units = value.encode("utf-16-le", "surrogatepass")
            chars = (units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2))
            return {str(index): char for index, char in enumerate(chars)}
        case _:
            return {}
