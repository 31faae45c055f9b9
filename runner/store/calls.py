"""Builders of every act: pure functions from typed values to a `Call` that changes something.

Rules of this file: no I/O; one builder per act; reads are in `reads`, answers in `answers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.recovery.evaluate import Incident
from runner.core.run import Ending
from runner.store.answers import (
    Answer,
    Batch,
    CancelAnswer,
    Claimed,
    Code,
    Created,
    Due,
    pairs,
)
from runner.store.call import Arg, Call
from runner.store.keys import Keys, RunKeys
from runner.store.records import (
    ProcessFacts,
    RunRecord,
    Snapshot,
    Terminal,
    incident_fields,
    read_record,
    storable,
)

ALIVE_MS = 7 * 86_400_000
"""Lifetime of a stream while its run lives, pushed forward by every append, heartbeat and look."""
HOLD_MS = 1_000
"""How long a run that a supervisor took is left alone by others."""
STALE_PROCESS_MS = 60_000
"""After this much silence a process is no longer listed."""
_NONE = b""


def create(
    keys: Keys,
    run: RunKeys,
    fields: Sequence[Arg],
    *,
    dispatch_grace_ms: int,
    idempotency: tuple[str, str, int] | None = None,
) -> Call[Created]:
    """Records a run. `idempotency` is key, payload digest and lifetime in ms."""
    key_names: tuple[str, ...] = (run.run, run.due, run.events)
    digest, lifetime = "", 0
    if idempotency is not None:
        name, digest, lifetime = idempotency
        key_names += (keys.idempotency(run.partition, name),)
    args = (run.run_id, dispatch_grace_ms, digest, lifetime, *fields)
    return Call("create", lambda raw: Created(Code(raw[0]), raw[1].decode()), args, key_names)


def dispatched(run: RunKeys, epoch: int, *, queue_check_ms: int) -> Call[Code]:
    """Clears the dispatch entry: the RQ job is in the queue."""
    return Call("dispatched", _code, (run.run_id, epoch, queue_check_ms), (run.run, run.due))


def claim(run: RunKeys, epoch: int, *, owner: str, token: str, lease_ms: int) -> Call[Claimed]:
    """Makes `owner` the owner of a queued run whose epoch is `epoch`."""

    def parse(raw: Any) -> Claimed:
        code = Code(raw[0])
        if code is not Code.OK:
            return Claimed(code)
        return Claimed(code, read_record(run.run_id, pairs(raw[1])))

    return Call(
        "claim",
        parse,
        (run.run_id, epoch, owner, token, lease_ms),
        (*_acts(run), run.owned(owner)),
    )


def append(run: RunKeys, epoch: int, batch: Batch) -> Call[Answer]:
    """Appends a batch as one entry, exactly once however often it is sent."""
    args = (epoch, batch.first_seq, batch.last_seq, batch.body, batch.credits, ALIVE_MS)
    return Call("append", _answer, args, (run.run, run.stream))


def beat(due: str, turns: Sequence[tuple[RunKeys, int, int]], *, lease_ms: int) -> Call[list[Code]]:
    """Renews the leases of a partition's turns, given as (run, epoch, credits); one code per turn."""
    key_names = (due, *(name for run, _, _ in turns for name in (run.run, run.stream)))
    args = (
        lease_ms,
        ALIVE_MS,
        *(arg for run, epoch, credited in turns for arg in (run.run_id, epoch, credited)),
    )
    # A credit that is sent again would be counted again; a lease that is renewed again is just renewed.
    repeatable = not any(credited for _, _, credited in turns)
    return Call("beat", lambda raw: [Code(code) for code in raw], args, key_names, repeatable=repeatable)


def expire_lease(run: RunKeys, *, owner: str, cause: str) -> Call[Code]:
    """Ends the lease of an owner that is known to be gone."""
    return Call("expire_lease", _code, (run.run_id, owner, cause), _acts(run))


def hand_over(run: RunKeys, epoch: int, *, owner: str, handovers: int, grace_ms: int) -> Call[Code]:
    """Gives a live turn back to the queue because its process stops. It counts against nothing."""
    args = (
        run.run_id,
        epoch,
        "owner",
        "handed-over",
        owner,
        grace_ms,
        _NONE,
        "handovers",
        handovers,
    )
    return Call("requeue", _code, args, (*_acts(run), run.owned(owner), run.sweep))


def give_back(run: RunKeys, epoch: int, *, owner: str, incident: Incident, why: str, delay_ms: int) -> Call[Code]:
    """Gives a turn back to be tried again after `delay_ms`, because its provider failed in a way that may pass."""
    args = (
        run.run_id,
        epoch,
        "owner",
        "retry",
        storable(why),
        delay_ms,
        _NONE,
        *incident_fields(incident),
    )
    return Call("requeue", _code, args, (*_acts(run), run.owned(owner), run.sweep))


def take_back(
    record: RunRecord,
    run: RunKeys,
    incident: Incident,
    *,
    cause: str,
    silent_ms: int,
    grace_ms: int,
) -> Call[Code]:
    """Takes a run from an owner whose lease is over."""
    args = (
        run.run_id,
        record.epoch,
        "supervisor",
        "lost",
        cause,
        grace_ms,
        silent_ms,
        *incident_fields(incident),
    )
    return Call("requeue", _code, args, (*_acts(run), run.owned(record.owner), run.sweep))


@dataclass(frozen=True, slots=True)
class Closing:
    """What goes with an end: its last chunks, the whole message, and the progress that a verdict was about."""

    batch: Batch | None = None
    snapshot: bytes = _NONE
    judged_progress: int | None = None


def finish(
    run: RunKeys, epoch: int, ending: Ending, *, by: str, owner: str, retention_ms: int, closing: Closing | None = None
) -> Call[Answer]:
    """Ends a run; `by` is owner, supervisor or canceller."""
    closing = closing or Closing()
    error = storable(ending.error)
    terminal = Terminal(run_id=run.run_id, state=ending.state, reason=ending.reason, error=error)
    last = closing.batch or Batch(0, 0, _NONE, 0)
    judged = _NONE if closing.judged_progress is None else closing.judged_progress
    args: tuple[Arg, ...] = (
        *(run.run_id, epoch, by, ending.state.value, ending.reason, error, retention_ms),
        *(last.first_seq, last.last_seq, last.body, last.credits),
        *(terminal.model_dump_json(), closing.snapshot, judged),
    )
    key_names = (run.run, run.stream, run.snapshot, run.ledger, run.children, run.due, run.events, run.owned(owner))
    return Call("finish", _answer, args, key_names)


def cancel(run: RunKeys) -> Call[CancelAnswer]:
    """Asks for a cancel."""

    def parse(raw: Any) -> CancelAnswer:
        if len(raw) == 1:
            return CancelAnswer(Code(raw[0]))
        return CancelAnswer(Code(raw[0]), raw[1].decode(), int(raw[2]))

    return Call("cancel", parse, (run.run_id,), _acts(run))


def remember(run: RunKeys, epoch: int, field: str, value: bytes, *, keep: str) -> Call[tuple[Code, bytes]]:
    """Stores one value of a turn in its ledger: `keep="first"` for a step's result, `"last"` for the stash."""

    def parse(raw: Any) -> tuple[Code, bytes]:
        return Code(raw[0]), raw[1] if len(raw) > 1 else _NONE

    return Call("memo", parse, (epoch, field, value, keep), (run.run, run.ledger))


def save_snapshot(run: RunKeys, epoch: int, snapshot: Snapshot) -> Call[Code]:
    """Stores the message so far, at the end of a step."""
    return Call("snapshot", _code, (epoch, snapshot.to_json(), snapshot.seq), (run.run, run.snapshot))


def take_due(keys: Keys, partition: int, *, limit: int, gap_ms: int) -> Call[Due]:
    """Takes what is due in a partition and holds it for HOLD_MS."""

    def parse(raw: Any) -> Due:
        return Due(int(raw[0]), int(raw[1]), tuple(run_id.decode() for run_id in raw[2:]))

    return Call(
        "take_due",
        parse,
        (limit, HOLD_MS, gap_ms),
        (keys.due(partition), keys.sweep(partition)),
        repeatable=False,
    )


def reschedule(run: RunKeys, at_ms: int, *, held_until_ms: int | None = None) -> Call[Code]:
    """Sets when a run must be looked at next; only if nobody else did, when it was held until `held_until_ms`."""
    held = _NONE if held_until_ms is None else held_until_ms
    return Call("reschedule", _code, (run.run_id, at_ms, ALIVE_MS, held), (run.run, run.stream, run.due))


def forget_due(keys: Keys, partition: int, entry: str) -> Call[Code]:
    """Removes an entry of the index that is no run at all."""
    return Call("ZREM", lambda _: Code.OK, (entry,), (keys.due(partition),), is_act=False)


def process_beat(key: str, facts: ProcessFacts) -> Call[int]:
    """Says that a process lives; answers the server's clock in ms."""
    body = facts.model_dump_json(exclude={"last_beat_ms"})
    return Call("process_beat", int, (facts.id, body, STALE_PROCESS_MS), (key,))


def forget_process(key: str, process_id: str) -> Call[int]:
    """Removes a process that ended."""
    return Call("HDEL", int, (process_id,), (key,), is_act=False)


def _acts(run: RunKeys) -> tuple[str, str, str]:
    return (run.run, run.due, run.events)


def _code(raw: Any) -> Code:
    return Code(raw[0])


def _answer(raw: Any) -> Answer:
    return Answer(Code(raw[0]), int(raw[1]))
