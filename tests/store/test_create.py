"""Create and dispatch: one act records a run with its dispatch entry, once per idempotency key (D8, BP-15)."""

from __future__ import annotations

from runner.core.run import State
from runner.ids import payload_digest
from runner.store import calls, reads
from runner.store.answers import Code, Created
from runner.store.call import Call
from tests.support.store import LEASE_MS, MESSAGE_ID, OTHER_RUN_ID, RUN_ID, Store, claimed, created

FIELDS = ("run_id", RUN_ID, "agent", "echo", "message_id", MESSAGE_ID)


def submission(store: Store, run_id: str, payload: bytes, *, key: str | None = "msg-9") -> Call[Created]:
    idempotency = None if key is None else (key, payload_digest(payload), 60_000)
    return calls.create(store.keys, store.of(run_id), FIELDS, dispatch_grace_ms=2_000, idempotency=idempotency)


def test_a_run_begins_queued_with_a_dispatch_entry_that_is_due_after_its_grace(store: Store) -> None:
    run = created(store, thread="t-1", no_progress_ms="")
    record = store.record(run)
    assert (record.state, record.epoch, record.seq, record.progress) == (State.QUEUED, 0, 0, 0)
    assert (record.dispatch, record.thread, record.attempts) == ("pending", "t-1", 0)
    assert record.created_at == record.queued_at == store.now_ms
    assert store.due_at(run) == store.now_ms + 2_000
    assert store.run(reads.read_due(store.keys, run.partition)) == [RUN_ID]
    assert [event["what"] for event in store.run(reads.read_events(run))] == ["created"]


def test_a_repeated_create_is_the_same_run(store: Store) -> None:
    call = submission(store, RUN_ID, b"one")
    assert store.run(call) == Created(Code.OK, RUN_ID)
    before = store.contents()
    assert store.run(call) == Created(Code.OK, RUN_ID)
    assert store.contents() == before


def test_a_repeated_create_does_not_take_a_claimed_run_back(store: Store) -> None:
    run = claimed(store)
    store.run(submission(store, RUN_ID, b"one", key=None))
    assert store.record(run).state is State.RUNNING


def test_a_key_stands_for_its_first_run(store: Store) -> None:
    store.run(submission(store, RUN_ID, b"one"))
    before = store.contents()
    assert store.run(submission(store, OTHER_RUN_ID, b"one")) == Created(Code.TAKEN, RUN_ID)
    assert store.run(submission(store, OTHER_RUN_ID, b"two")) == Created(Code.CONFLICT, RUN_ID)
    assert store.contents() == before
    assert 0 < store.ttl_ms(store.keys.idempotency(0, "msg-9")) <= 60_000


def test_submissions_without_a_key_are_runs_of_their_own(store: Store) -> None:
    for run_id in (RUN_ID, OTHER_RUN_ID):
        assert store.run(submission(store, run_id, b"one", key=None)) == Created(Code.OK, run_id)
    assert store.run(reads.read_due(store.keys, 0)) == [RUN_ID, OTHER_RUN_ID]


def test_values_of_a_record_are_kept_as_given(store: Store) -> None:
    run = created(store, payload='{"input": {"text": "é\\u0000\\n"}}', agent="a b")
    record = store.record(run)
    assert record.request == {"input": {"text": "é\u0000\n"}}
    assert record.agent == "a b"


def test_dispatched_clears_the_entry_and_looks_for_the_job_later(store: Store) -> None:
    run = created(store)
    assert store.run(calls.dispatched(run, 0, queue_check_ms=5_000)) is Code.OK
    record = store.record(run)
    assert (record.dispatch, record.dispatches) == ("sent", 1)
    assert store.due_at(run) == store.now_ms + 5_000


def test_a_late_dispatched_does_not_touch_a_run_that_was_claimed_meanwhile(store: Store) -> None:
    run = created(store)
    store.run(calls.claim(run, 0, owner="w", token="w/1", lease_ms=LEASE_MS))
    assert store.run(calls.dispatched(run, 0, queue_check_ms=60_000)) is Code.FENCED
    assert store.due_at(run) == store.now_ms + LEASE_MS


def test_reading_a_run_that_is_not_there(store: Store) -> None:
    run = store.of()
    assert store.run(reads.read_run(run)) is None
    assert store.run(reads.read_snapshot(run)) is None
    assert store.run(reads.read_ledger(run)) == {}
    assert store.run(reads.read_events(run)) == []
    assert store.entries(run) == []
