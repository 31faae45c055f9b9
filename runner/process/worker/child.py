"""What a process of the pool does from its fork to its end.

Rule of this file: every connection and thread is made after the fork.
"""

from __future__ import annotations

from runner.agent import Agents
from runner.process.worker.isolated import IsolatedWorker
from runner.process.worker.turn_worker import TurnWorker
from runner.settings import Settings


def run_child(settings: Settings, agents: Agents, process_id: str, *, isolate: bool) -> int:
    """Works until the process is told to stop; returns its exit code."""
    worker = (IsolatedWorker if isolate else TurnWorker)(settings, agents, process_id)
    worker.work(logging_level="WARNING")
    return 0 if worker.stopping else 1
