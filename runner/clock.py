"""The wall clock of a process, as a port.

Rule of this file: it only measures waits inside one process. Every timestamp that a decision reads comes from the
server's own clock, inside the script that writes it.
"""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Milliseconds from an arbitrary origin; never goes back."""
    return time.monotonic_ns() // 1_000_000
