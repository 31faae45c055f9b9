"""The tie between a process and its parent.

Rule of this file: Linux only; elsewhere a lease, a lock or a closed pipe decides what becomes of an orphan.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Makes the kernel send `number` to this process when its parent dies. When it is dead already, sends it now."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
