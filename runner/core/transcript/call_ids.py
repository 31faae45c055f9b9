"""Call ids that a provider accepts: limited in length and alphabet, unique in one request.

Rules of this file: an id that is fine and new stays as it is. Any other becomes the readable rest of itself and a
digest, made from the id and how often it came before: so the ids of a history never change while it grows.
"""

from __future__ import annotations

import hashlib
import string
from dataclasses import dataclass

_ALPHABET = string.ascii_letters + string.digits
_DIGEST = 12
_LEAST_LENGTH, _LEAST_CHARACTERS = 8, 16


@dataclass(frozen=True, slots=True)
class IdRules:
    """What a provider allows in a call id. Lengths in characters; an exact length is min_length == max_length.

    ValueError for rules that leave too little room to tell calls apart.
    """

    max_length: int = 64
    charset: str = _ALPHABET + "_-"
    min_length: int = 1

    def __post_init__(self) -> None:
        if not self.min_length <= self.max_length or self.max_length < _LEAST_LENGTH:
            raise ValueError(
                f"lengths {self.min_length} to {self.max_length}: allow {_LEAST_LENGTH} characters or more"
            )
        if len(set(self.charset)) < max(_LEAST_CHARACTERS, len(self.charset)):
            raise ValueError(f"charset: {_LEAST_CHARACTERS} characters or more, each once")

    def allow(self, call_id: str) -> bool:
        """Whether the id may be sent as it is."""
        return self.min_length <= len(call_id) <= self.max_length and all(char in self.charset for char in call_id)


class CallIds:
    """Names the calls of one request, in their order. Without rules only a repeated id is renamed."""

    def __init__(self, rules: IdRules | None = None) -> None:
        self._limited = rules is not None
        self._rules = rules or IdRules()
        self._seen: dict[str, int] = {}
        self._taken: set[str] = set()

    def name(self, call_id: str) -> str:
        """The id to send for the next call with that id; never the same twice."""
        before = self._seen.get(call_id, 0)
        self._seen[call_id] = before + 1
        named = call_id if self._may_stay(call_id) else self._derived(call_id, before)
        self._taken.add(named)
        return named

    def _may_stay(self, call_id: str) -> bool:
        fine = self._rules.allow(call_id) if self._limited else bool(call_id)
        return fine and call_id not in self._taken

    def _derived(self, call_id: str, before: int) -> str:
        rules = self._rules
        size = min(rules.max_length, max(_DIGEST, rules.min_length))
        rest = "".join(char for char in call_id if char in rules.charset)[: rules.max_length - size]
        tries = 0
        while True:
            named = rest + _digest(f"{before}:{tries}:{call_id}", size, rules.charset)
            if named not in self._taken:
                return named
            tries += 1


def _digest(text: str, size: int, charset: str) -> str:
    hashed = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(size * 2)
    number = int.from_bytes(hashed)
    letters = []
    for _ in range(size):
        number, rest = divmod(number, len(charset))
        letters.append(charset[rest])
    return "".join(letters)
