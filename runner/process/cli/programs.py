"""`worker` and `supervisor`: the long-running programs, each until it is told to stop.

Rule of this file: it finds the server and starts the program; what the program does stands in its own module.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from argparse import Namespace

from runner.process.address import with_server
from runner.settings import load_settings

_PR_SET_PDEATHSIG = 1


def run_worker(arguments: Namespace) -> int:
    """Runs turns."""
    from runner.process.worker.pool import run_pool

    _stop_with_parent(arguments.stop_with_parent)
    overrides = {} if arguments.concurrency is None else {"concurrency": arguments.concurrency}
    with with_server(load_settings(**overrides)) as settings:
        return run_pool(settings, processes=arguments.processes, isolate=arguments.isolate)


def run_supervisor(arguments: Namespace) -> int:
    """Brings back runs that stopped."""
    from runner.process.supervisor import run_supervisor as supervise

    _stop_with_parent(arguments.stop_with_parent)
    with with_server(load_settings()) as settings:
        return supervise(settings)


def _stop_with_parent(pid: int | None) -> None:
    """Makes the kernel stop this process when its parent dies (Linux; elsewhere it goes on until it is told)."""
    if pid is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != pid:
        sys.exit(0)
