"""The processes of a simulated deployment: callers, supervisors and workers, each with a graph of objects of its own.

Rules of this file: a process shares nothing with another but the servers behind its line; a killed one loses all it
has, its tasks among it, and nothing of it goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

import redis
import redis.asyncio

from runner.dispatch import Ticket
from runner.engine import execution, inspection, submit, supervision
from runner.engine.hosting import Hosted
from runner.engine.requeue import Requeue
from runner.engine.runtime import Links, Runtime, writer_limits
from runner.engine.writer import AppendPipe
from runner.errors import RunnerError
from runner.store.executor import AsyncExecutor
from tests.support.faults import FaultyBeats, FaultyClient, FaultyDispatcher, Line, Plan
from tests.support.store import FAKE_URL, script_on_manual_clock
from tests.support.virtual_time import pass_ms

if TYPE_CHECKING:
    from tests.support.simulation import World

T = TypeVar("T")

_OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Process:
    """A caller or a supervisor: links of its own over a line of its own, and the tasks that run in it."""

    def __init__(self, world: World, name: str, plan: Plan | None = None) -> None:
        self.world, self.name = world, name
        self.line = Line(name, plan, world.tick, world.observe)
        client = FaultyClient(self.line, world.client, world.answered_here)
        self.store = AsyncExecutor(
            FAKE_URL, retries=None, client=cast("redis.asyncio.Redis", client), find_script=script_on_manual_clock
        )
        self.dispatcher = FaultyDispatcher(world.broker, world.settings.queue, self.line)
        self.links = Links(world.settings, world.keys, self.store, self.dispatcher)
        self.tasks: set[asyncio.Task[Any]] = set()

    @property
    def lost(self) -> bool:
        """Whether it died or stands still."""
        return self.line.dead or not self.line.awake.is_set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of work done in this process; None when the process died of it."""
        context = contextvars.copy_context()
        context.run(_OWNER.set, self)
        loop = asyncio.get_running_loop()
        working = loop.create_task(work, context=context)
        death = loop.create_task(self.line.died.wait())
        await asyncio.wait({working, death}, return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if self.line.dead:
            await self.kill()
            return None
        return await working

    async def kill(self) -> None:
        """Ends the process at once: nothing of it goes on, and nothing of it is sent."""
        self.line.dead = True
        self.line.wake()
        while left := [task for task in self.tasks if not task.done()]:
            for task in left:
                task.cancel()  # again and again: whatever such a task still waits for will not come
            await asyncio.sleep(0)
        for task in self.tasks:
            task.cancelled() or task.exception()  # seen: how a killed process ended says nothing

    async def submit(self, agent: str, **submission: Any) -> submit.Submitted | None:
        """Submits from this process."""
        return await self.run(submit.submit(self.links, submit.Submission(agent, **submission)))

    async def sweep(self) -> supervision.Swept | None:
        """One sweep; what it raised as a refusal is left to the next one, as a supervisor does."""
        with suppress(RunnerError):
            return await self.run(supervision.sweep(self.links))
        return None

    async def cancel(self, run_id: str) -> inspection.Cancelled | None:
        """Asks for a cancel."""
        return await self.run(inspection.cancel(self.links, run_id))


class Worker(Process):
    """A worker process: hosts turns, sends their heartbeats, hands them over."""

    def __init__(self, world: World, name: str, plan: Plan | None = None) -> None:
        super().__init__(world, name, plan)
        settings = world.settings
        self._beats = FaultyBeats(FAKE_URL, self.line, world.store.client)
        self._beating: asyncio.Task[None] | None = None
        self.loop_is_stuck = False
        """Set to stop the heartbeats, as a real worker does when its loop stands."""
        self.refusals: list[BaseException] = []
        """What executions raised out of their job: nothing, if all is well."""
        self.runtime = Runtime(
            settings=settings,
            keys=world.keys,
            store=self.store,
            dispatcher=self.dispatcher,
            agents=world.agents,
            process_id=name,
            pipe=AppendPipe(self.store, writer_limits(settings)),
            hosted=Hosted(world.keys),
            requeue=Requeue(self.dispatcher, self.store, world.keys, settings.queue_check_ms),
        )

    @property
    def lost(self) -> bool:
        """Also when it was told to stop."""
        return super().lost or self.runtime.hosted.stopping.is_set()

    async def execute(self, ticket: Ticket) -> bool:
        """Runs one job. False when the process died of it."""
        await self.run(self._execute(ticket))
        if not self.line.dead:
            self.world.forget_job(ticket)
        return not self.line.dead

    async def work(self) -> bool:
        """Pops a job that must be there, and runs it. False when the process died of it."""
        ticket = self.world.pop()
        assert ticket is not None, "no job waits"
        return await self.execute(ticket)

    def told_to_stop(self) -> asyncio.Task[None]:
        """SIGTERM: it takes no more jobs, hands its turns over, and enqueues them."""
        self.runtime.hosted.stopping.set()
        return asyncio.create_task(self.run(self._shut_down()))

    async def _execute(self, ticket: Ticket) -> None:
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat())
        try:
            await execution.execute(self.runtime, ticket.run_id, ticket.epoch)
        except RunnerError as why:
            self.refusals.append(why)

    async def _shut_down(self) -> None:
        await self.runtime.hosted.hand_over(grace_s=self.world.settings.handover_grace_ms / 1_000)
        self.runtime.requeue.may_enqueue.set()
        await self.runtime.requeue.drained()

    async def _beat(self) -> None:
        settings = self.world.settings
        while True:
            await pass_ms(settings.beat_ms)
            if len(self.runtime.hosted) and self.line.awake.is_set() and not self.loop_is_stuck:
                with suppress(RunnerError):
                    for turn, code in self.runtime.hosted.beat(self._beats, lease_ms=settings.lease_ms):
                        turn.answered(code)


def owned_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """A task that belongs to the process in whose context it is made."""
    made: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    context: contextvars.Context | None = options.get("context")
    owner = context.get(_OWNER) if context is not None else _OWNER.get()
    if owner is not None:
        owner.tasks.add(made)
    return made
