"""What the engine works with, built once per event loop by `bootstrap`.

Rule of this file: references only; whoever built the parts closes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.agent import Agents
from runner.core.recovery.evaluate import Deadlines
from runner.dispatch import Dispatcher
from runner.engine.hosting import Hosted
from runner.engine.requeue import Requeue
from runner.engine.writer import AppendPipe, WriterLimits
from runner.settings import Settings
from runner.store.executor import AsyncExecutor
from runner.store.keys import Keys


@dataclass(slots=True)
class Links:
    """What reaches the outside: all that a client or a supervisor needs."""

    settings: Settings
    keys: Keys
    store: AsyncExecutor
    dispatcher: Dispatcher

    def deadlines(self, fresh_from_ms: int = 0) -> Deadlines:
        """The clockwork that verdicts are made with."""
        return Deadlines(self.settings.lease_ms, self.settings.queue_check_ms, fresh_from_ms)


@dataclass(slots=True)
class Runtime(Links):
    """The graph of a process that runs turns: the links, the agents, and the turns it hosts."""

    agents: Agents
    process_id: str
    pipe: AppendPipe
    hosted: Hosted
    requeue: Requeue


def writer_limits(settings: Settings) -> WriterLimits:
    """The sizes of the append path."""
    return WriterLimits(settings.batch_chunks, settings.batch_bytes, settings.buffer_bytes, settings.append_window_ms)
