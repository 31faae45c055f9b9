"""A whole deployment in one event loop: servers, workers, supervisors and callers, on virtual time.

Rules of this file: everything but the network, the clock and the processes' boundaries is the product; every process
has its own graph of objects and shares nothing with another; a killed process loses all of it. After every call the
records are looked at, so that what must never go back is seen going back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, cast

import fakeredis
import redis
import redis.asyncio
from rq.exceptions import NoSuchJobError
from rq.serializers import JSONSerializer
from rq.utils import as_text

from runner.agent import Agents
from runner.dispatch import Dispatcher, Ticket, TurnJob
from runner.settings import Settings, load_settings
from runner.store.answers import Code
from runner.store.call import script_names
from runner.store.keys import Keys
from runner.store.records import RunRecord
from tests.support.faults import Fault, Plan, Words, named
from tests.support.processes import Process, Worker, owned_task
from tests.support.store import FAKE_URL, FIRST_NOW_MS, NOW_KEY, Store, script_on_manual_clock
from tests.support.virtual_time import pass_ms

T = TypeVar("T")

QUICK: dict[str, Any] = {
    "lease_ms": 500,
    "beat_ms": 100,
    "sweep_ms": 100,
    "dispatch_grace_ms": 300,
    "queue_check_ms": 500,
    "handover_grace_ms": 50,
    "retention_ms": 3_600_000,
}
STEP_MS = 200
"""How far time moves between two looks at everything; below the gap that a sweep takes for an outage."""

_KEPT = (Code.OK, Code.CANCELLED)
"""The answers after which a step's result is recorded."""


@dataclass
class Seen:
    """What a run's record said, each time it had changed."""

    states: list[tuple[str, int]] = field(default_factory=list)
    progress: list[int] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)


class World:
    """One deployment. Build it on a `VirtualLoop`; `aclose` ends every process of it."""

    def __init__(self, agents: Agents, **settings: Any) -> None:
        self.agents = agents
        self.settings = _settings(tuple(sorted({"redis_url": FAKE_URL, **QUICK, **settings}.items())))
        self.keys = Keys(self.settings.key_prefix)
        self.server, self.broker_server = fakeredis.FakeServer(), fakeredis.FakeServer()
        self.store = Store("fake", FAKE_URL, fakeredis.FakeRedis(server=self.server), self.server)
        self.client = fakeredis.FakeAsyncRedis(server=self.server)
        """What carries the calls of every process: only their lines are their own."""
        self.broker = fakeredis.FakeRedis(server=self.broker_server)
        self.dispatcher = Dispatcher(self.broker, self.settings.queue)
        self.processes: list[Process] = []
        self.run_ids: list[str] = []
        self.seen: dict[str, Seen] = {}
        self.journal: list[tuple[str, str, str]] = []
        """(effect | recorded, run id, step): effects of steps and records of their results, as they happened."""
        self.away = False
        """Set to take all servers away from every process."""
        self._partitions: set[str] = set()
        self._standing: list[tuple[Process, asyncio.Task[object]]] = []
        self._numbers = itertools.count(1)
        self._stamped_ms = -1
        for name in script_names():
            self.store.client.script_load(script_on_manual_clock(name).text)
        asyncio.get_running_loop().set_task_factory(owned_task)

    @property
    def now_ms(self) -> int:
        """The servers' clock: that of the loop."""
        return FIRST_NOW_MS + round(asyncio.get_running_loop().time() * 1_000)

    def record(self, run_id: str) -> RunRecord:
        """The record of a run, as it is now."""
        return self.store.record(self.keys.of_run(run_id))

    def ended(self, run_id: str) -> bool:
        """Whether the run has come to its end."""
        raw: Any = self.store.client.hget(self.keys.of_run(run_id).run, "ended_at")
        return raw is not None

    def process(self, kind: str, plan: Plan | None = None) -> Process:
        """A new process."""
        made = Process(self, f"{kind}-{next(self._numbers)}", plan)
        self.processes.append(made)
        return made

    def worker(self, plan: Plan | None = None) -> Worker:
        """A new worker process."""
        made = Worker(self, f"worker-{next(self._numbers)}", plan)
        self.processes.append(made)
        return made

    async def submit(self, agent: str, **submission: Any) -> str:
        """Submits a run from a caller whose calls all succeed; its id."""
        made = await self.process("caller").submit(agent, **submission)
        assert made is not None
        return made.run_id

    def pop(self) -> Ticket | None:
        """Takes the first job from the RQ queue, as a worker does; a job whose hash is gone is dropped."""
        while (raw := self.broker.lpop(self.dispatcher.queue.key)) is not None:
            with suppress(NoSuchJobError):
                job = TurnJob.fetch(as_text(cast("bytes", raw)), connection=self.broker, serializer=JSONSerializer)
                run_id, epoch = job.args
                return Ticket(run_id, epoch)
        return None

    def forget_job(self, ticket: Ticket) -> None:
        """What RQ does with the hash of a job that has succeeded."""
        self.broker.delete(TurnJob.key_for(ticket.job_id))

    async def work_off(self, worker: Worker) -> int:
        """Runs every waiting job on that worker, one after the other, until it is lost; how many."""
        done = 0
        while not worker.lost and (ticket := self.pop()) is not None:
            await self.as_long_as_it_moves(worker, worker.execute(ticket))
            done += 1
        return done

    async def settle(
        self,
        *run_ids: str,
        worker: Worker | None = None,
        supervisor: Process | None = None,
        hire: Callable[[], Worker] | None = None,
        rounds: int = 120,
    ) -> None:
        """Two supervisors (one of them `supervisor`) and a worker (`worker` at first) go on until these runs have
        ended. A process that is lost is replaced (a worker as `hire` says, otherwise by one that nothing befalls);
        one that stalls is left standing."""
        hire = hire or self.worker
        worker, first, second = worker or hire(), supervisor or self.process("sup"), self.process("sup")
        for number in range(rounds):
            await self._look(number % 3, first, second)
            first = self.process("sup") if first.lost else first
            await self.work_off(worker)
            worker = hire() if worker.lost else worker
            if all(self.ended(run_id) for run_id in run_ids):
                return
            await pass_ms(STEP_MS)
        left = {run_id: self.record(run_id).state for run_id in run_ids if not self.ended(run_id)}
        raise AssertionError(f"not ended after {rounds} rounds: {left}")

    async def watch(self, until: Callable[[], bool], rounds: int = 120, step_ms: int = STEP_MS) -> None:
        """Two supervisors look by turns, and nobody new works, until that holds."""
        supervisors = self.process("sup"), self.process("sup")
        for number in range(rounds):
            if until():
                return
            await supervisors[number % 2].sweep()
            await pass_ms(step_ms)
        raise AssertionError(f"it did not come true within {rounds * step_ms} ms")

    async def as_long_as_it_moves(self, process: Process, work: Coroutine[Any, Any, object]) -> None:
        """Waits for work of a process until it is done or the process stalls; then it is left to `wake_all`."""
        working = asyncio.create_task(work)
        stall = asyncio.create_task(process.line.stalled.wait())
        await asyncio.wait({working, stall}, return_when=asyncio.FIRST_COMPLETED)
        stall.cancel()
        if working.done():
            await working
        else:
            self._standing.append((process, working))

    async def wake_all(self) -> list[Process]:
        """Every stalled process wakes and goes on to its end. Which ones they were."""
        standing, self._standing = self._standing, []
        for process, working in standing:
            process.line.wake()
            await working
            await pass_ms(1)  # what it does behind its own work
        return [process for process, _ in standing]

    async def _look(self, turn: int, first: Process, second: Process) -> None:
        """One supervisor sweeps, or the other, or both at once."""
        sweeping = [sup for number, sup in enumerate((first, second)) if turn in (number, 2)]
        await asyncio.gather(*(self.as_long_as_it_moves(sup, sup.sweep()) for sup in sweeping))

    def tick(self) -> None:
        """Hands the loop's time to the servers. ConnectionError while they are away."""
        if self.away:
            raise redis.ConnectionError("the servers are away")
        now_ms = self.now_ms
        if now_ms != self._stamped_ms:
            self.store.client.set(NOW_KEY, now_ms)
            self._stamped_ms = now_ms

    def answered_here(self, words: Words) -> Any:
        """The answer to what needs no server: its clock, and the take of a partition that has never held a run."""
        if words[0] == "TIME":
            return [self.now_ms // 1_000, self.now_ms % 1_000 * 1_000]
        if named(words) == "create":
            self._partitions.add(words[4])
        elif named(words) == "take_due" and words[3] not in self._partitions:
            return [self.now_ms, 0]
        return None

    def observe(self, words: Sequence[Words], raws: Sequence[Any]) -> None:
        """Looks at every record, and keeps what changed."""
        for call, raw in zip(words, raws, strict=True):
            act = named(call)
            if act == "create" and raw[0] == 0 and (run_id := raw[1].decode()) not in self.run_ids:
                self.run_ids.append(run_id)
            if act == "memo" and raw[0] in _KEPT and call[6].startswith("step:"):
                recorded = ("recorded", call[3].partition(":run:")[2], call[6].removeprefix("step:"))
                if recorded not in self.journal:
                    self.journal.append(recorded)
        if any(call[0] == "EVALSHA" and named(call) != "take_due" for call in words):
            for run_id in self.run_ids:
                self._look_at(run_id)

    async def aclose(self) -> None:
        """Ends every process."""
        for process in self.processes:
            await process.kill()
        for _, working in self._standing:
            await working
        await self.client.aclose()
        self.store.client.close()
        self.broker.close()

    def _look_at(self, run_id: str) -> None:
        raw: Any = self.store.client.hmget(self.keys.of_run(run_id).run, "state", "epoch", "progress", "seq")
        seen = self.seen.setdefault(run_id, Seen())
        state = (raw[0].decode(), int(raw[1]))
        if not seen.states or seen.states[-1] != state:
            seen.states.append(state)
        seen.progress.append(int(raw[2]))
        seen.seqs.append(int(raw[3]))


@cache
def _settings(values: tuple[tuple[str, Any], ...]) -> Settings:
    return load_settings(**dict(values))


def at_call(number: int, fault: Fault) -> Plan:
    """A plan with one fault."""
    return Plan(faults={number: fault})


def hook_at(number: int, hook: Callable[[], Coroutine[Any, Any, object]]) -> Plan:
    """A plan that does something just before one call."""
    return Plan(hooks={number: hook})


__all__ = ["QUICK", "STEP_MS", "Plan", "Process", "Seen", "Worker", "World", "at_call", "hook_at"]
