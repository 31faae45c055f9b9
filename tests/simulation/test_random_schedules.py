"""Random schedules: three runs, two workers, two supervisors, and whatever may happen to them, at any time.

Rules of this file: no budget is set, so whatever happens every run must end with its whole answer, or cancelled if
somebody asked for that. Over all examples everything must really have happened, or the test shows nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.run import State
from runner.dispatch import Ticket
from runner.errors import RunnerError
from runner.store import reads
from runner.store.answers import Code
from tests.simulation.invariants import check_ended, check_outcome
from tests.simulation.scenarios import CUT, STEPS, Scenario, world_of
from tests.support.simulation import Process, Worker, World
from tests.support.virtual_time import pass_ms, run_virtual

SLOW = Scenario("counter", "0 1 2 3 4 5 6 7 ", input={"n": 8, "pace_ms": 150})
RUNS = (SLOW, CUT, STEPS)
HORIZON_MS = 2_500
OFF = {"no_progress_ms": None, "attempts": None, "lost_workers": None}


@dataclass(frozen=True)
class Event:
    """Something that happens: when, what, and to the how-manieth of its kind."""

    at_ms: int
    what: str
    which: int


EVENTS = st.lists(
    st.builds(
        Event,
        at_ms=st.integers(1, HORIZON_MS),
        what=st.sampled_from(
            ("crash", "crash", "stall", "stop", "cancel", "outage", "duplicate", "lose_jobs", "crash_supervisor")
        ),
        which=st.integers(0, 2),
    ),
    min_size=2,
    max_size=8,
)


class Crew:
    """Who works in one world, and what happens to them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.workers: list[Worker] = [world.worker(), world.worker()]
        self.supervisors: list[Process] = [world.process("sup"), world.process("sup")]
        self.run_ids: list[str] = []
        self.cancelled: set[str] = set()
        self.happened: Counter[str] = Counter()
        self._doing: list[asyncio.Task[Any]] = []

    async def live(self, events: list[Event]) -> None:
        """Everybody works while the events happen; then all heals, until every run has ended."""
        loops = [self._work(0), self._work(1), self._supervise(0, 100), self._supervise(1, 130), self._submit()]
        for work in (*loops, *(self._happen(event) for event in events)):
            self._do(work)
        await pass_ms(HORIZON_MS + 1_500)
        self.world.away = False
        for worker in self.workers:
            worker.line.wake()
        for _ in range(200):
            if all(self.world.ended(run_id) for run_id in self.run_ids):
                break
            await pass_ms(200)
        for task in self._doing:
            task.cancel()
        for outcome in await asyncio.gather(*self._doing, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        self._doing.append(asyncio.create_task(work))

    async def _submit(self) -> None:
        for scenario in RUNS:
            self.run_ids.append(await self.world.submit(scenario.name, budgets=OFF, **scenario.submission))
            await pass_ms(100)

    async def _work(self, slot: int) -> None:
        while True:
            worker = self.workers[slot]
            if worker.line.dead or worker.runtime.hosted.stopping.is_set():
                self.workers[slot] = self.world.worker()
            elif worker.line.awake.is_set() and (ticket := self.world.pop()) is not None:
                self._do(worker.execute(ticket))
            await pass_ms(40)

    async def _supervise(self, slot: int, every_ms: int) -> None:
        while True:
            if self.supervisors[slot].line.dead:
                self.supervisors[slot] = self.world.process("sup")
            await self.supervisors[slot].sweep()
            await pass_ms(every_ms)

    async def _happen(self, event: Event) -> None:
        await pass_ms(event.at_ms)
        worker, run_id = self.workers[event.which % 2], self.run_ids[event.which % len(self.run_ids)]
        busy = len(worker.runtime.hosted) > 0
        match event.what:
            case "crash":
                worker.line.die()
                await worker.kill()
            case "crash_supervisor":
                self.supervisors[event.which % 2].line.die()
                await self.supervisors[event.which % 2].kill()
            case "stall":
                worker.line.stall()
                await pass_ms(1_000)
                worker.line.wake()
            case "stop":
                await worker.told_to_stop()
            case "outage":
                self.world.away = True
                await pass_ms(900)
                self.world.away = False
            case "lose_jobs":
                self.world.broker.flushall()
            case "duplicate":
                self._do(worker.execute(Ticket(run_id, self.world.record(run_id).epoch)))
            case _:
                assert event.what == "cancel"
                await self._cancel(run_id)
        self.happened[event.what] += busy or event.what not in {"crash", "stall", "stop"}

    async def _cancel(self, run_id: str) -> None:
        try:
            answer = await self.world.process("caller").cancel(run_id)
        except RunnerError:
            return
        if answer is not None and answer.landed:
            self.cancelled.add(run_id)


async def judge(crew: Crew) -> None:
    """Every run ended as it should have, and everybody who came late was refused."""
    world = crew.world
    for run_id, scenario in zip(crew.run_ids, RUNS, strict=True):
        assert world.ended(run_id), f"{scenario.name} has not ended: {world.record(run_id)}"
        if run_id in crew.cancelled:
            assert (await check_ended(world, run_id)).state is State.CANCELLED
        else:
            await check_outcome(world, run_id, scenario)
        events = world.store.run(reads.read_events(world.keys.of_run(run_id)))
        crew.happened.update(event["what"] for event in events)
    told = [answer for process in world.processes for answer in process.line.answers]
    crew.happened["write refused"] += sum(a.act == "append" and a.code in (Code.FENCED, Code.TERMINAL) for a in told)
    crew.happened["claim refused"] += sum(a.act == "claim" and a.code in (Code.FENCED, Code.TERMINAL) for a in told)


async def one_life(events: list[Event]) -> Counter[str]:
    world = world_of()
    try:
        crew = Crew(world)
        await crew.live(events)
        await judge(crew)
        return crew.happened
    finally:
        await world.aclose()


def test_whatever_happens_every_answer_arrives_whole() -> None:
    happened: Counter[str] = Counter()

    @settings(max_examples=30, derandomize=True, database=None)
    @given(EVENTS)
    def live_through(events: list[Event]) -> None:
        happened.update(run_virtual(one_life(events)))

    live_through()
    never = {
        *("crash", "stall", "stop", "cancel", "outage", "duplicate", "lose_jobs", "crash_supervisor"),
        *("lost", "handed-over", "retry", "completed", "cancelled", "write refused", "claim refused"),
    } - {what for what, count in happened.items() if count}
    assert never == set(), "it never happened, so nothing is shown"
