"""`worker` and `supervisor`: the long-running programs, each until it is told to stop.

Rule of this file: it finds the server and starts the program; what the program does stands in its own module.
"""

from __future__ import annotations

import signal
from argparse import Namespace

from runner.process.address import with_server
from runner.process.lifeline import end_with_parent
from runner.settings import load_settings


def run_worker(arguments: Namespace) -> int:
    """Runs turns."""
    from runner.process.worker.pool import run_pool

    if arguments.stop_with_parent is not None:
        end_with_parent(arguments.stop_with_parent, signal.SIGTERM)
    overrides = {} if arguments.concurrency is None else {"concurrency": arguments.concurrency}
    with with_server(load_settings(**overrides)) as settings:
        return run_pool(settings, processes=arguments.processes, isolate=arguments.isolate)


def run_supervisor(arguments: Namespace) -> int:
    """Brings back runs that stopped."""
    from runner.process.supervisor import run_supervisor as supervise

    if arguments.stop_with_parent is not None:
        end_with_parent(arguments.stop_with_parent, signal.SIGTERM)
    with with_server(load_settings()) as settings:
        return supervise(settings)
