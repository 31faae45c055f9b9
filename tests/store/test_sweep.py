"""What a sweep takes, and how it notices an outage (D11, I22)."""

from __future__ import annotations

from runner.store import calls, reads
from runner.store.answers import Code, Due
from tests.support.store import LEASE_MS, OTHER_RUN_ID, RUN_ID, Store, batch, claimed, created

GAP_MS = 2_000


def take(store: Store, limit: int = 10) -> Due:
    return store.run(calls.take_due(store.keys, 0, limit=limit, gap_ms=GAP_MS))


def test_what_is_due_is_taken_and_nothing_before_its_time(store: Store) -> None:
    run = created(store)
    assert take(store) == Due(store.now_ms, 0, ())
    store.advance(1_999)
    assert take(store).run_ids == ()
    store.advance(1)
    assert take(store) == Due(store.now_ms, 0, (run.run_id,))


def test_a_taken_run_is_held_from_the_next_sweep_for_a_while(store: Store) -> None:
    run = created(store)
    store.advance(2_000)
    assert take(store).run_ids == (RUN_ID,)
    assert take(store).run_ids == ()
    assert store.due_at(run) == store.now_ms + calls.HOLD_MS
    store.advance(calls.HOLD_MS - 1)
    assert take(store).run_ids == ()
    store.advance(1)
    assert take(store).run_ids == (RUN_ID,), "a supervisor that died with it has lost nothing"


def test_a_sweep_takes_the_longest_due_first_and_no_more_than_its_limit(store: Store) -> None:
    created(store, OTHER_RUN_ID)
    store.advance(1)
    created(store)
    store.advance(2_000)
    assert [take(store, limit=1).run_ids for _ in range(3)] == [(OTHER_RUN_ID,), (RUN_ID,), ()]


def test_partitions_are_swept_apart(store: Store) -> None:
    elsewhere = created(store, f"3f{'a' * 24}")
    store.advance(5_000)
    assert take(store).run_ids == ()
    due = store.run(calls.take_due(store.keys, 63, limit=10, gap_ms=GAP_MS))
    assert due.run_ids == (elsewhere.run_id,)


def test_the_first_sweep_sees_no_outage(store: Store) -> None:
    assert take(store).fresh_from_ms == 0


def test_a_gap_between_sweeps_is_an_outage_and_deadlines_begin_at_its_end(store: Store) -> None:
    take(store)
    store.advance(GAP_MS)
    assert take(store).fresh_from_ms == 0, "no longer than the gap"
    back = store.advance(GAP_MS + 1)
    assert take(store).fresh_from_ms == back
    store.advance(500)
    assert take(store).fresh_from_ms == back, "it stays until the next one"
    again = store.advance(GAP_MS + 1)
    assert take(store).fresh_from_ms == again


def test_every_supervisor_is_told_the_same_end_of_an_outage(store: Store) -> None:
    take(store)
    store.advance(GAP_MS + 1)
    assert take(store).fresh_from_ms == take(store).fresh_from_ms == store.now_ms


def test_a_sweep_is_not_repeated_by_itself(store: Store) -> None:
    """A repeated take would miss what the lost reply named until the hold ends; the next sweep is as good."""
    assert calls.take_due(store.keys, 0, limit=1, gap_ms=1).repeatable is False


def test_reschedule_sets_the_next_look_and_keeps_the_stream_alive(store: Store) -> None:
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    store.client.pexpire(run.stream, 5_000)
    assert store.run(calls.reschedule(run, 1_234_567)) is Code.OK
    assert store.due_at(run) == 1_234_567
    assert store.ttl_ms(run.stream) > 5_000


def test_a_look_that_ends_hides_nothing_that_happened_meanwhile(store: Store) -> None:
    """What was held is set only by who held it; any other time in the index came later and stands."""
    run = created(store)
    held_until = store.advance(2_000) + calls.HOLD_MS
    assert take(store).run_ids == (RUN_ID,)
    store.run(calls.cancel(run))
    assert store.run(calls.reschedule(run, 9_999_999, held_until_ms=held_until)) is Code.FENCED
    assert store.due_at(run) == store.now_ms
    held_until = store.now_ms + calls.HOLD_MS
    assert take(store).run_ids == (RUN_ID,)
    assert store.run(calls.reschedule(run, 9_999_999, held_until_ms=held_until)) is Code.OK
    assert store.due_at(run) == 9_999_999


def test_the_index_forgets_what_is_gone(store: Store) -> None:
    run = claimed(store)
    store.client.delete(run.run)
    assert store.run(calls.reschedule(run, 1)) is Code.TERMINAL
    assert store.run(reads.read_due(store.keys, 0)) == []


def test_a_cancel_makes_a_queued_run_due_at_once_and_leaves_a_running_one_to_its_owner(store: Store) -> None:
    queued, running = created(store), claimed(store, OTHER_RUN_ID)
    at = store.advance(10)
    for run in (queued, running):
        store.run(calls.cancel(run))
    assert store.due_at(queued) == at
    assert store.due_at(running) == at - 10 + LEASE_MS
    assert take(store).run_ids == (RUN_ID,)


def test_a_repeated_cancel_is_the_same_cancel(store: Store) -> None:
    run = claimed(store)
    first = store.run(calls.cancel(run))
    assert (first.code, first.state, first.epoch) == (Code.OK, "running", 1)
    asked = store.record(run).cancel_at
    store.advance(10)
    assert store.run(calls.cancel(run)) == first
    assert store.record(run).cancel_at == asked == store.now_ms - 10
    events = store.run(reads.read_events(run))
    assert [event["what"] for event in events].count("cancel-requested") == 1


def test_a_cancel_between_two_attempts_wins_before_the_next_one_starts(store: Store) -> None:
    """BP-06."""
    run = claimed(store)
    store.run(calls.hand_over(run, 1, owner="worker-1", handovers=1, grace_ms=0))
    store.run(calls.cancel(run))
    answer = store.run(calls.claim(run, 1, owner="worker-2", token="t", lease_ms=LEASE_MS))
    assert (answer.code, answer.record) == (Code.CANCELLED, None)
