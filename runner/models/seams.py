"""Text seams: where a stream cuts a text, and where a continuation joins a partial answer.

Rules of this file: pure string work, no provider knowledge. A text that leaves here is valid Unicode, so that it can be
stored and sent again.
"""

from __future__ import annotations

from typing import Any

_FIRST_HIGH, _LAST_HIGH = "\ud800", "\udbff"


def whole(text: str) -> str:
    """`text` with split surrogate pairs joined; a half without its other half becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_value(value: Any) -> Any:
    """A JSON value with `whole` applied to every string in it, keys included."""
    match value:
        case str():
            return whole(value)
        case dict():
            return {whole_value(key): whole_value(item) for key, item in value.items()}
        case list() | tuple():
            return [whole_value(item) for item in value]
        case _:
            return value


class SurrogateJoin:
    """Joins surrogate halves that a provider split over two deltas: a high half waits for the delta after it."""

    def __init__(self) -> None:
        self._high = ""

    def push(self, delta: str) -> str:
        """What can be given out now; may be empty."""
        text, self._high = self._high + delta, ""
        if text and _FIRST_HIGH <= text[-1] <= _LAST_HIGH:
            text, self._high = text[:-1], text[-1]
        return whole(text)

    def flush(self) -> str:
        """What was still waiting when the text ended."""
        rest, self._high = whole(self._high), ""
        return rest


class SeamTrim:
    """Keeps a continuation from repeating white space that the partial answer already ends with.

    The partial is sent without its trailing white space (`held`): providers refuse it or tokenise badly after it. A
    model therefore begins with that white space once more, and it is taken off here.
    """

    def __init__(self, held: str) -> None:
        self._held, self._lead = held, ""

    def push(self, delta: str) -> str:
        """What can be given out now; may be empty while only white space came."""
        if not self._held:
            return delta
        self._lead += delta
        body = self._lead.lstrip()
        if not body:
            return ""
        held, lead = self._held, self._lead
        self._held = self._lead = ""
        return lead.removeprefix(held) if lead.startswith(held) else body
