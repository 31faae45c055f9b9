"""How long to wait before a provider is asked again.

Rule of this file: doubling from one second, capped; a provider's own wish wins, up to its own cap.
"""

from __future__ import annotations

LONGEST_MS = 30_000
LONGEST_WISH_MS = 60_000
FIRST_MS = 1_000


def provider_delay_ms(attempt: int, wished_ms: int | None = None) -> int:
    """Milliseconds before the try that follows the n-th failed one in a row, n from 1."""
    if wished_ms is not None:
        return max(0, min(wished_ms, LONGEST_WISH_MS))
    return int(min(LONGEST_MS, FIRST_MS * 2 ** min(attempt - 1, 16)))
