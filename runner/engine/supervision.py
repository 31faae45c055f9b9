"""The sweep: take what is due, decide by the record, apply by compare-and-set.

Rules of this file: no user code runs here; an act that lost a race changed nothing and needs no answer; two supervisors
never do more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner import ids
from runner.core.recovery.evaluate import (
    Attempt,
    Deadlines,
    Enqueue,
    Forget,
    LookInQueue,
    Seal,
    Verdict,
    Wait,
    evaluate,
    next_queue_look,
)
from runner.dispatch import Ticket
from runner.engine.runtime import Links
from runner.engine.terminal import end_from_outside
from runner.errors import InvalidInput, RecordUnreadable
from runner.store import calls, reads
from runner.store.answers import Code, Due
from runner.store.call import Call
from runner.store.keys import RunKeys
from runner.store.records import RunRecord
from runner.telemetry import log

_log = log("supervision")

UNREADABLE_MS = 60_000
"""How long a run whose record cannot be read is left alone before it is reported again."""
READ_AT_ONCE = 500
"""Records read in one trip."""


@dataclass(slots=True)
class Swept:
    """What one sweep did."""

    due: int = 0
    enqueued: int = 0
    attempts: int = 0
    sealed: int = 0


@dataclass(slots=True)
class _Case:
    """One due run with what is known about it."""

    run: RunKeys
    record: RunRecord | None
    verdict: Verdict
    now_ms: int


@dataclass(slots=True)
class _Plan:
    """The verdicts of a sweep, by what must be done."""

    later: list[Call[Code]] = field(default_factory=list)
    enqueue: list[_Case] = field(default_factory=list)
    look: list[_Case] = field(default_factory=list)
    attempt: list[_Case] = field(default_factory=list)
    seal: list[_Case] = field(default_factory=list)


async def sweep(links: Links) -> Swept:
    """One look at everything due. Raises a ServerError when the server is away: sweep again later."""
    settings = links.settings
    gap_ms = max(settings.lease_ms // 2, settings.sweep_ms * 3)
    takes = [
        calls.take_due(links.keys, partition, limit=settings.sweep_batch, gap_ms=gap_ms)
        for partition in range(ids.PARTITIONS)
    ]
    dues = await links.store.run_many(takes)
    swept, plan, taken = Swept(), _Plan(), []
    for partition, due in enumerate(dues):
        for run_id in due.run_ids:
            run = _known(links, run_id)
            if run is None:
                plan.later.append(calls.forget_due(links.keys, partition, run_id))
            else:
                taken.append((run, due))
    swept.due = len(taken)
    for at in range(0, len(taken), READ_AT_ONCE):
        await _judge(links, taken[at : at + READ_AT_ONCE], plan)
    await _apply(links, plan, swept)
    return swept


def _known(links: Links, run_id: str) -> RunKeys | None:
    """The keys of a run; None for an entry that is no run id: a stranger wrote it, and it must not hide the others."""
    try:
        return links.keys.of_run(run_id)
    except InvalidInput:
        _log.error("due.no-run", entry=run_id[:80])
        return None


async def _judge(links: Links, taken: Sequence[tuple[RunKeys, Due]], plan: _Plan) -> None:
    records = await links.store.run_many([reads.look_at_run(run) for run, _ in taken])
    for (run, due), record in zip(taken, records, strict=True):
        if isinstance(record, RecordUnreadable):
            _log.error("record.unreadable", run_id=run.run_id, why=record.why)
            plan.later.append(calls.reschedule(run, due.now_ms + UNREADABLE_MS))
            continue
        facts = None if record is None else record.facts()
        deadlines = links.deadlines(due.fresh_from_ms)
        verdict = Forget() if facts is None else evaluate(facts, due.now_ms, deadlines)
        _sort(_Case(run, record, verdict, due.now_ms), plan, deadlines)


def _sort(case: _Case, plan: _Plan, deadlines: Deadlines) -> None:
    match case.verdict:
        case Forget():
            plan.later.append(_look_again(case, 0))
        case Wait(until_ms=until_ms):
            plan.later.append(_look_again(case, until_ms))
        case Enqueue():
            plan.enqueue.append(case)
        case LookInQueue():
            assert case.record is not None
            look_ms = next_queue_look(case.record.queued_at, case.now_ms, deadlines)
            plan.later.append(_look_again(case, look_ms))
            plan.look.append(case)
        case Attempt():
            plan.attempt.append(case)
        case Seal():
            plan.seal.append(case)


async def _apply(links: Links, plan: _Plan, swept: Swept) -> None:
    if plan.later:
        await links.store.run_many(plan.later)
    first = await _take_back(links, plan.attempt)
    await _enqueue(links, first, at_front=True)
    missing = await _missing(links, plan.look)
    await _enqueue(links, [_ticket(case) for case in plan.enqueue] + missing, at_front=False)
    for case in plan.seal:
        swept.sealed += await _seal(links, case)
    swept.attempts += len(first)
    swept.enqueued += len(plan.enqueue) + len(missing)


async def _take_back(links: Links, cases: Sequence[_Case]) -> list[Ticket]:
    acts = []
    for case in cases:
        assert isinstance(case.verdict, Attempt)
        assert case.record is not None
        acts.append(
            calls.take_back(
                case.record,
                case.run,
                case.verdict.incident,
                cause=case.verdict.cause,
                silent_ms=case.verdict.silent_ms,
                grace_ms=links.settings.dispatch_grace_ms,
            )
        )
    codes = await links.store.run_many(acts) if acts else []
    taken = [case for case, code in zip(cases, codes, strict=True) if code is Code.OK]
    for case in taken:
        assert isinstance(case.verdict, Attempt)
        _log.warning("run.taken-back", run_id=case.run.run_id, cause=case.verdict.cause)
    return [_ticket(case) for case in taken]


async def _missing(links: Links, cases: Sequence[_Case]) -> list[Ticket]:
    if not cases:
        return []
    lost = await asyncio.to_thread(links.dispatcher.lost, [_ticket(case) for case in cases])
    for ticket in lost:
        _log.warning("run.enqueued-again", run_id=ticket.run_id, epoch=ticket.epoch)
    return lost


async def _enqueue(links: Links, tickets: list[Ticket], *, at_front: bool) -> None:
    if not tickets:
        return
    await asyncio.to_thread(links.dispatcher.enqueue, tickets, at_front=at_front)
    check_ms = links.settings.queue_check_ms
    await links.store.run_many(
        [calls.dispatched(links.keys.of_run(t.run_id), t.epoch, queue_check_ms=check_ms) for t in tickets]
    )


async def _seal(links: Links, case: _Case) -> bool:
    assert isinstance(case.verdict, Seal)
    assert case.record is not None
    judged = case.verdict.judged_progress
    try:
        answer = await end_from_outside(
            links, case.run, case.record.epoch, case.verdict.ending, by="supervisor", judged_progress=judged
        )
    except (ValueError, KeyError, TypeError) as why:  # what is stored of it is not what we write: others must go on
        _log.error("run.cannot-be-ended", run_id=case.run.run_id, why=type(why).__name__)
        await links.store.run(calls.reschedule(case.run, case.now_ms + UNREADABLE_MS))
        return False
    return answer.code is Code.OK


def _look_again(case: _Case, at_ms: int) -> Call[Code]:
    return calls.reschedule(case.run, at_ms, held_until_ms=case.now_ms + calls.HOLD_MS)


def _ticket(case: _Case) -> Ticket:
    assert case.record is not None
    return Ticket(case.run.run_id, case.record.epoch)
