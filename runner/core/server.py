"""Which server is new enough, and who a server says it is.

Rules of this file: pure; the floor stands here once, for a binary to be started and for a live server
alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

FLOOR: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({"redis": (7, 0), "valkey": (7, 2)})
"""Product -> the oldest (major, minor) that has every command the scripts use."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def meets_floor(product: str, version: str) -> bool:
    """Whether that product ("redis" or "valkey") is new enough. An unknown product or an unreadable version is not."""
    floor, numbers = FLOOR.get(product), _NUMBERS.match(version)
    if floor is None or numbers is None:
        return False
    return (int(numbers[1]), int(numbers[2])) >= floor


def floor_text(product: str) -> str:
    """The floor for a refusal: "Redis 7.0", or all floors when the product is not one of them."""
    named = {product: FLOOR[product]} if product in FLOOR else FLOOR
    return " or ".join(f"{name.capitalize()} {major}.{minor}" for name, (major, minor) in named.items())


def identify(info: Mapping[str, object]) -> tuple[str, str]:
    """(product, version) from the server section of INFO.

    Valkey also reports a `redis_version`, that of the Redis it is compatible with, so its own field is read first.
    """
    if "valkey_version" in info:
        return "valkey", str(info["valkey_version"])
    return "redis", str(info.get("redis_version", "unknown"))
