"""The facade: what parent services call. `Runner` is async; `SyncRunner` is the same for threads.

Rules of this file: no behaviour of its own; every method is one sentence over the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

from runner.agent import Agents
from runner.bootstrap import close_links, make_links
from runner.core.run import ENDED
from runner.core.turn.round import Message
from runner.engine import inspection, submit
from runner.engine.inspection import Cancelled, RunView
from runner.engine.runtime import Links
from runner.engine.stopping import stop
from runner.engine.submit import Submission, Submitted
from runner.engine.tailing import TailHub, TailItem
from runner.errors import WaitTimeout
from runner.settings import Settings, load_settings
from runner.store import reads
from runner.store.records import ProcessFacts, RunRecord
from runner.store.server import check_server

T = TypeVar("T")


class Runner:
    """Submits, reads and cancels runs. Use it as `async with Runner.from_url(..) as runner`; one per event loop.

    Entering it checks the server: ServerUnreachable, ServerTooOld or ServerEvicts say what to do.
    """

    def __init__(self, settings: Settings, *, agents: Agents | None = None) -> None:
        self.settings = settings
        self._agents = agents
        self._opened: tuple[Links, TailHub] | None = None

    @classmethod
    def from_url(cls, url: str, *, agents: Agents | None = None, **options: Any) -> Runner:
        """A runner for the server at `url`; `options` are fields of `Settings`."""
        return cls(load_settings(redis_url=url, **options), agents=agents)

    async def __aenter__(self) -> Runner:
        links = make_links(self.settings)
        try:
            await check_server(links.store, allow_eviction=self.settings.allow_eviction)
        except BaseException:
            await close_links(links)
            raise
        self._opened = links, TailHub(links.store, links.keys, self.settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        links, hub = self._parts
        self._opened = None
        await hub.aclose()
        await close_links(links)

    async def submit(
        self,
        agent: str,
        message: str | None = None,
        *,
        input: Any = None,  # noqa: A002 - the field's standard word
        messages: list[Message] | None = None,
        thread: str | None = None,
        idempotency_key: str | None = None,
        budgets: dict[str, Any] | None = None,
    ) -> Submitted:
        """Submits a turn; `messages` is the conversation before it, as UI messages. With a key, the same key and
        payload give the same run for RUNNER_IDEMPOTENCY_MS.

        Raises UnknownAgent (when this runner knows the agents), InvalidInput, TooLarge or IdempotencyConflict.
        """
        if self._agents is not None:
            self._agents.get(agent)
        submission = Submission(agent, message, input, messages, thread, idempotency_key, budgets)
        return await submit.submit(self.links, submission)

    async def get(self, run_id: str) -> RunView:
        """A run and its message so far. Raises RunNotFound."""
        return await inspection.get(self.links, run_id)

    def tail(self, run_id: str, *, after: int = 0) -> AsyncIterator[TailItem]:
        """Every chunk behind the seq `after`, live, then the terminal. Raises RunNotFound or InvalidCursor."""
        return self._parts[1].tail(run_id, after=after)

    async def wait(self, run_id: str, *, timeout_ms: int | None = None) -> RunView:
        """The run once it has ended. Raises WaitTimeout after `timeout_ms`; None waits for ever."""
        waiting = asyncio.create_task(self._ended(run_id))
        try:
            await asyncio.wait([waiting], timeout=None if timeout_ms is None else timeout_ms / 1_000)
            if not waiting.done():
                raise WaitTimeout(run_id, timeout_ms or 0)
            await waiting
        finally:
            await stop(waiting)
        return await self.get(run_id)

    async def _ended(self, run_id: str) -> None:
        record = (await self.get(run_id)).record
        if record.state not in ENDED:
            async for _ in self.tail(run_id, after=record.seq):
                pass

    async def cancel(self, run_id: str) -> Cancelled:
        """Asks that a run ends as cancelled; says whether that landed or the run had already ended."""
        return await inspection.cancel(self.links, run_id)

    async def explain(self, run_id: str) -> list[dict[str, str]]:
        """Every transition of a run, oldest first: `at` (ms), `what`, `epoch`, `detail`."""
        return await inspection.explain(self.links, run_id)

    async def live_runs(self, *, limit: int = 200) -> list[RunRecord]:
        """Runs that have not ended, oldest first."""
        return await inspection.live_runs(self.links, limit=limit)

    async def workers(self) -> list[ProcessFacts]:
        """The worker processes that live."""
        return await self.links.store.run(reads.read_processes(self.links.keys.workers))

    async def supervisors(self) -> list[ProcessFacts]:
        """The supervisors that live."""
        return await self.links.store.run(reads.read_processes(self.links.keys.supervisors))

    @property
    def links(self) -> Links:
        """The store and the dispatcher behind this runner."""
        return self._parts[0]

    @property
    def _parts(self) -> tuple[Links, TailHub]:
        assert self._opened is not None, "use the runner inside `async with`"
        return self._opened


class SyncRunner:
    """`Runner` for threads: the same methods, blocking. It owns an event loop in a thread of its own."""

    def __init__(self, settings: Settings, *, agents: Agents | None = None) -> None:
        self._runner = Runner(settings, agents=agents)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sync-runner", daemon=True)

    @classmethod
    def from_url(cls, url: str, *, agents: Agents | None = None, **options: Any) -> SyncRunner:
        """As `Runner.from_url`."""
        return cls(load_settings(redis_url=url, **options), agents=agents)

    def __enter__(self) -> SyncRunner:
        self._thread.start()
        try:
            self._wait(self._runner.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._runner.__aexit__())
        self._stop()

    def submit(self, agent: str, message: str | None = None, **options: Any) -> Submitted:
        """As `Runner.submit`."""
        return self._wait(self._runner.submit(agent, message, **options))

    def get(self, run_id: str) -> RunView:
        """As `Runner.get`."""
        return self._wait(self._runner.get(run_id))

    def tail(self, run_id: str, *, after: int = 0) -> Iterator[TailItem]:
        """As `Runner.tail`."""
        items = self._runner.tail(run_id, after=after)
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self._wait(_next(items))

    def wait(self, run_id: str, *, timeout_ms: int | None = None) -> RunView:
        """As `Runner.wait`."""
        return self._wait(self._runner.wait(run_id, timeout_ms=timeout_ms))

    def cancel(self, run_id: str) -> Cancelled:
        """As `Runner.cancel`."""
        return self._wait(self._runner.cancel(run_id))

    def explain(self, run_id: str) -> list[dict[str, str]]:
        """As `Runner.explain`."""
        return self._wait(self._runner.explain(run_id))

    def workers(self) -> list[ProcessFacts]:
        """As `Runner.workers`."""
        return self._wait(self._runner.workers())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(items: AsyncIterator[TailItem]) -> TailItem:
    return await anext(items)
