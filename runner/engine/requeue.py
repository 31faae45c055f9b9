"""Puts runs back at the head of their queue, many in one trip, once this process takes no more jobs.

Rule of this file: a process that still pops would pop back what it just gave away, so nothing is enqueued before it has
left its queue. Should it die here, the dispatch entries are still there.
"""

from __future__ import annotations

import asyncio

from runner.dispatch import Dispatcher, Ticket
from runner.errors import RunnerError
from runner.store import calls
from runner.store.answers import Code
from runner.store.call import Call
from runner.store.executor import AsyncExecutor
from runner.store.keys import Keys
from runner.telemetry import log

_log = log("requeue")


class Requeue:
    """The hand-overs of one process on their way to the queue."""

    def __init__(self, dispatcher: Dispatcher, store: AsyncExecutor, keys: Keys, queue_check_ms: int) -> None:
        self.may_enqueue = asyncio.Event()
        self._dispatcher, self._store, self._keys = dispatcher, store, keys
        self._queue_check_ms = queue_check_ms
        self._tickets: list[Ticket] = []
        self._sending: asyncio.Task[None] | None = None

    def offer(self, ticket: Ticket) -> None:
        """Takes a run that was handed over."""
        self._tickets.append(ticket)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def drained(self) -> None:
        """Returns when everything offered is enqueued, or left to the supervisor."""
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        await self.may_enqueue.wait()
        while self._tickets:
            tickets, self._tickets = self._tickets, []
            try:
                await asyncio.to_thread(self._dispatcher.enqueue, tickets, at_front=True)
                await self._store.run_many([self._mark(ticket) for ticket in tickets])
            except RunnerError as why:
                _log.warning("requeue.left-to-supervisor", runs=len(tickets), why=str(why))

    def _mark(self, ticket: Ticket) -> Call[Code]:
        run = self._keys.of_run(ticket.run_id)
        return calls.dispatched(run, ticket.epoch, queue_check_ms=self._queue_check_ms)
