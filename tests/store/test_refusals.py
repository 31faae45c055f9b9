"""Every act in every situation: what it answers, and that what it refuses changes nothing (I2, I19, BP-10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner.core.recovery.evaluate import Incident
from runner.core.run import TRANSITIONS, Act, Ending, Reason, State
from runner.store import calls, reads
from runner.store.answers import Code
from runner.store.call import Call, script_names
from runner.store.keys import RunKeys
from runner.store.records import Snapshot
from tests.support.store import LEASE_MS, OWNER, RETENTION_MS, Store, batch, claimed, created

Attempted = Callable[[Store, RunKeys, int], Any]

CANCELLED = Ending(State.CANCELLED, Reason.CANCEL_REQUESTED)
COMPLETED = Ending(State.COMPLETED, Reason.FINISHED)
FAILED = Ending(State.FAILED, Reason.AGENT_ERROR, "boom")
SEALED = Ending(State.SEALED, Reason.NO_PROGRESS)


def _finish(run: RunKeys, epoch: int, ending: Ending, by: str) -> Call[Any]:
    silent = calls.Closing(judged_progress=0) if by == "supervisor" else None
    return calls.finish(run, epoch, ending, by=by, owner=OWNER, retention_ms=RETENTION_MS, closing=silent)


def _take_back(store: Store, run: RunKeys, epoch: int) -> Call[Any]:
    record = store.run(reads.read_run(run)) or store.record(created(store, f"00{'c' * 24}"))
    judged = record.model_copy(update={"epoch": epoch, "owner": OWNER})
    return calls.take_back(judged, run, Incident(), cause="lease expired", silent_ms=0, grace_ms=10)


ATTEMPTS: dict[str, Attempted] = {
    "append": lambda store, run, epoch: calls.append(run, epoch, batch(1, "x")),
    "snapshot": lambda store, run, epoch: calls.save_snapshot(run, epoch, Snapshot(seq=0, fold={})),
    "memo": lambda store, run, epoch: calls.remember(run, epoch, "step:1", b"1", keep="first"),
    "beat": lambda store, run, epoch: calls.beat(run.due, [(run, epoch, 1)], lease_ms=LEASE_MS),
    "claim": lambda store, run, epoch: calls.claim(run, epoch, owner="late", token="late/1", lease_ms=LEASE_MS),
    "dispatched": lambda store, run, epoch: calls.dispatched(run, epoch, queue_check_ms=5_000),
    "hand over": lambda store, run, epoch: calls.hand_over(run, epoch, owner=OWNER, handovers=1, grace_ms=10),
    "give back": lambda store, run, epoch: calls.give_back(
        run, epoch, owner=OWNER, incident=Incident(), why="provider", delay_ms=10
    ),
    "take back": _take_back,
    "expire lease": lambda store, run, epoch: calls.expire_lease(run, owner=OWNER, cause="its process ended"),
    "cancel": lambda store, run, epoch: calls.cancel(run),
    "complete": lambda store, run, epoch: _finish(run, epoch, COMPLETED, "owner"),
    "seal": lambda store, run, epoch: _finish(run, epoch, SEALED, "supervisor"),
    "end as cancelled": lambda store, run, epoch: _finish(run, epoch, CANCELLED, "canceller"),
    "reschedule": lambda store, run, epoch: calls.reschedule(run, 42),
}


def _unknown(store: Store) -> RunKeys:
    return store.of()


def _cancelling(store: Store) -> RunKeys:
    run = claimed(store)
    store.run(calls.cancel(run))
    return run


def _queued_cancelling(store: Store) -> RunKeys:
    run = created(store)
    store.run(calls.cancel(run))
    return run


def _ended(store: Store) -> RunKeys:
    run = claimed(store)
    store.run(_finish(run, 1, FAILED, "owner"))
    return run


SITUATIONS: dict[str, tuple[Callable[[Store], RunKeys], int]] = {
    "unknown": (_unknown, 1),
    "queued": (created, 0),
    "queued, stale": (created, 7),
    "queued, cancelling": (_queued_cancelling, 0),
    "running": (claimed, 1),
    "running, stale": (claimed, 0),
    "cancelling": (_cancelling, 1),
    "ended": (_ended, 1),
}
OK, FENCED, UNKNOWN, TERMINAL, CANCELLING = Code.OK, Code.FENCED, Code.UNKNOWN, Code.TERMINAL, Code.CANCELLED

# One row for each act, one column for each situation, in their order above.
EXPECTED: dict[str, tuple[Code, ...]] = {
    "append": (UNKNOWN, FENCED, FENCED, FENCED, OK, FENCED, CANCELLING, TERMINAL),
    "snapshot": (UNKNOWN, FENCED, FENCED, FENCED, OK, FENCED, CANCELLING, TERMINAL),
    "memo": (UNKNOWN, FENCED, FENCED, FENCED, OK, FENCED, CANCELLING, TERMINAL),
    "beat": (UNKNOWN, FENCED, FENCED, FENCED, OK, FENCED, CANCELLING, TERMINAL),
    "claim": (UNKNOWN, OK, FENCED, CANCELLING, FENCED, FENCED, FENCED, TERMINAL),
    "dispatched": (FENCED, OK, FENCED, OK, FENCED, FENCED, FENCED, FENCED),
    "hand over": (FENCED, FENCED, FENCED, FENCED, OK, FENCED, CANCELLING, TERMINAL),
    "give back": (FENCED, FENCED, FENCED, FENCED, OK, FENCED, CANCELLING, TERMINAL),
    # The lease lives in every situation here: a supervisor may take nothing.
    "take back": (FENCED, FENCED, FENCED, FENCED, FENCED, FENCED, CANCELLING, TERMINAL),
    "expire lease": (FENCED, FENCED, FENCED, FENCED, OK, OK, OK, FENCED),  # it knows the owner, not the epoch
    "cancel": (UNKNOWN, OK, OK, OK, OK, OK, OK, TERMINAL),  # anybody may, in every state
    "complete": (UNKNOWN, FENCED, FENCED, FENCED, OK, FENCED, CANCELLING, TERMINAL),
    "seal": (UNKNOWN, OK, FENCED, CANCELLING, OK, FENCED, CANCELLING, TERMINAL),
    "end as cancelled": (UNKNOWN, OK, FENCED, OK, FENCED, FENCED, FENCED, TERMINAL),
    "reschedule": (TERMINAL, OK, OK, OK, OK, OK, OK, TERMINAL),
}
# What a cancelling turn may still write: what it did is kept, and its lease lives until it ends.
WRITES_WHILE_CANCELLING = {"snapshot", "memo", "beat"}


def code_of(answer: Any) -> Code:
    """The code of any act's answer."""
    match answer:
        case Code():
            return answer
        case [Code() as first, *_] | (Code() as first, *_):
            return first
        case _:
            found: Code = answer.code
            return found


@pytest.mark.parametrize("act", ATTEMPTS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_act_answers_by_the_table_and_a_refusal_changes_nothing(store: Store, act: str, situation: str) -> None:
    enter, epoch = SITUATIONS[situation]
    run = enter(store)
    call = ATTEMPTS[act](store, run, epoch)
    before = store.contents()
    code = code_of(store.run(call))
    assert code is EXPECTED[act][list(SITUATIONS).index(situation)]
    changed = store.contents() != before
    if code is not OK:
        assert changed is (code is CANCELLING and act in WRITES_WHILE_CANCELLING)
    else:
        assert changed or (act, situation) in {("cancel", "cancelling"), ("cancel", "queued, cancelling")}


def test_every_script_has_a_row_or_a_module_of_its_own() -> None:
    used = {"append", "snapshot", "memo", "beat", "claim", "dispatched", "requeue", "expire_lease", "cancel", "finish"}
    alone = {"create", "take_due", "process_beat"}
    assert set(script_names()) == used | alone | {"reschedule"}


ACTS: dict[Act, Attempted] = {
    Act.CLAIM: ATTEMPTS["claim"],
    Act.REQUEUE: ATTEMPTS["give back"],
    Act.COMPLETE: ATTEMPTS["complete"],
    Act.FAIL: lambda store, run, epoch: _finish(run, epoch, FAILED, "owner"),
    Act.SEAL: ATTEMPTS["seal"],
}


def _in_state(store: Store, state: State) -> tuple[RunKeys, int]:
    if state is State.QUEUED:
        return created(store), 0
    run = claimed(store)
    if state is not State.RUNNING:
        store.run(_finish(run, 1, Ending(state, "for the test"), "owner"))
    return run, 1


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("act", Act)
def test_the_acts_move_a_run_as_the_transition_table_says(store: Store, state: State, act: Act) -> None:
    run, epoch = _in_state(store, state)
    if act is Act.CANCEL:
        by = "canceller" if state is State.QUEUED else "owner"
        call = _finish(run, epoch, CANCELLED, by)
    else:
        call = ACTS[act](store, run, epoch)
    store.run(call)
    assert store.record(run).state is TRANSITIONS.get((state, act), state)


def test_a_stalled_attempt_that_wakes_is_refused_in_all_it_does(store: Store) -> None:
    """BP-10: the worker's name is the same, the epoch is not."""
    run = claimed(store)
    store.advance(LEASE_MS)
    record = store.record(run)
    taken = calls.take_back(record, run, Incident(), cause="lease expired", silent_ms=0, grace_ms=0)
    assert store.run(taken) is Code.OK
    second = store.run(calls.claim(run, 1, owner=OWNER, token=f"{OWNER}/2", lease_ms=LEASE_MS)).record
    assert second is not None
    assert second.epoch == 2
    before = store.contents()
    assert store.run(calls.beat(run.due, [(run, 1, 3)], lease_ms=60_000)) == [Code.FENCED]
    assert store.run(calls.hand_over(run, 1, owner=OWNER, handovers=1, grace_ms=0)) is Code.FENCED
    assert store.run(_finish(run, 1, COMPLETED, "owner")).code is Code.FENCED
    assert store.run(calls.append(run, 1, batch(1, "late"))).code is Code.FENCED
    assert store.run(calls.append(run, 1, batch(2, "later"))).code is Code.FENCED
    assert store.contents() == before
    assert store.record(run).lease_until == store.now_ms + LEASE_MS
