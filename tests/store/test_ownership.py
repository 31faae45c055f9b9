"""Claim, heartbeat, hand-over and loss: who owns a run, until when (I2, I9, I10, I21, BP-10, BP-14)."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.recovery.evaluate import Incident
from runner.core.run import State
from runner.store import calls, reads
from runner.store.answers import Claimed, Code
from runner.store.call import Call
from runner.store.keys import RunKeys
from tests.support.store import LEASE_MS, OTHER_RUN_ID, OWNER, Store, batch, claimed, created

WINDOW_MS = 12_000


def claim(store: Store, run: RunKeys, epoch: int, token: str = "t") -> Claimed:
    return store.run(calls.claim(run, epoch, owner=OWNER, token=token, lease_ms=LEASE_MS))


def owned(store: Store, run: RunKeys, owner: str = OWNER) -> list[str]:
    return store.run(reads.read_owned(store.keys, run.partition, owner))


def beat(store: Store, *turns: tuple[RunKeys, int, int]) -> list[Code]:
    return store.run(calls.beat(store.keys.due(0), turns, lease_ms=LEASE_MS))


def test_a_claim_makes_an_owner_with_a_lease_and_the_next_epoch(store: Store) -> None:
    run = created(store)
    at = store.advance(700)
    answer = claim(store, run, 0)
    assert answer.code is Code.OK
    assert answer.record == store.record(run)
    record = store.record(run)
    assert (record.state, record.epoch, record.owner, record.attempts) == (State.RUNNING, 1, OWNER, 1)
    assert (record.started_at, record.claimed_at, record.progress_at) == (at, at, at)
    assert record.lease_until == at + LEASE_MS == store.due_at(run)
    assert record.dispatch == ""
    assert owned(store, run) == [run.run_id]


def test_a_repeated_claim_is_the_same_claim(store: Store) -> None:
    run = created(store)
    first = claim(store, run, 0, token="mine")
    before = store.contents()
    assert claim(store, run, 0, token="mine") == first
    assert claim(store, run, 0, token="another").code is Code.FENCED
    assert store.contents() == before


def test_the_start_of_a_run_is_its_first_claim(store: Store) -> None:
    run = claimed(store)
    begun = store.now_ms
    store.advance(1_000)
    store.run(calls.hand_over(run, 1, owner=OWNER, handovers=1, grace_ms=0))
    claim(store, run, 1)
    record = store.record(run)
    assert (record.started_at, record.claimed_at, record.attempts) == (begun, begun + 1_000, 2)


def test_a_run_is_looked_at_when_its_window_ends_if_that_is_before_its_lease(store: Store) -> None:
    run = claimed(store, no_progress_ms=2_000)
    assert store.due_at(run) == store.now_ms + 2_001


@pytest.mark.parametrize("window", ["", LEASE_MS * 10])
def test_a_window_that_is_off_or_long_leaves_the_look_at_the_lease_end(store: Store, window: str | int) -> None:
    run = claimed(store, no_progress_ms=window)
    assert store.due_at(run) == store.now_ms + LEASE_MS


def test_time_in_the_queue_is_no_silence(store: Store) -> None:
    """I21 and I10: what was silent before stays spent; the wait adds nothing."""
    run = claimed(store, no_progress_ms=WINDOW_MS)
    store.advance(3_000)
    store.run(calls.hand_over(run, 1, owner=OWNER, handovers=1, grace_ms=0))
    at = store.advance(3_600_000)
    claim(store, run, 1)
    assert store.record(run).progress_at == at - 3_000
    assert store.due_at(run) == at + LEASE_MS
    store.advance(2_000)
    store.run(calls.hand_over(run, 2, owner=OWNER, handovers=2, grace_ms=0))
    at = store.advance(3_600_000)
    claim(store, run, 2)
    assert store.record(run).progress_at == at - 5_000, "one window over all attempts"


def test_a_first_claim_gets_the_whole_window_however_long_it_waited(store: Store) -> None:
    run = created(store, no_progress_ms=2_000)
    at = store.advance(3_600_000)
    claim(store, run, 0)
    assert (store.record(run).progress_at, store.due_at(run)) == (at, at + 2_001)


def test_a_supervisor_says_how_long_the_run_was_silent(store: Store) -> None:
    """After an outage it knows better than the time stamps."""
    run = claimed(store)
    store.advance(LEASE_MS + 60_000)
    incident = Incident(attempt=2, progress=0, strikes=1, lost_at_ms=store.now_ms)
    taken = calls.take_back(store.record(run), run, incident, cause="lost", silent_ms=1_000, grace_ms=300)
    assert store.run(taken) is Code.OK
    record = store.record(run)
    assert (record.state, record.dispatch, record.owner, record.lease_until) == (State.QUEUED, "pending", "", 0)
    assert (record.attempt, record.strikes, record.lost_at) == (2, 1, store.now_ms)
    assert store.due_at(run) == store.now_ms + 300
    assert owned(store, run) == []
    at = store.advance(50)
    claim(store, run, 1)
    assert store.record(run).progress_at == at - 1_000


def test_a_supervisor_cannot_take_a_run_while_its_lease_lives(store: Store) -> None:
    """It may have looked before a heartbeat: what counts is the lease in the script (BP-14)."""
    run = claimed(store)
    seen = store.record(run)
    store.advance(LEASE_MS - 1)
    beat(store, (run, 1, 0))
    store.advance(1)
    late = calls.take_back(seen, run, Incident(), cause="lost", silent_ms=0, grace_ms=0)
    assert store.run(late) is Code.FENCED
    store.advance(LEASE_MS - 2)
    assert store.run(late) is Code.FENCED, "one ms before its end"
    store.advance(1)
    assert store.run(late) is Code.OK


def test_its_owner_may_give_a_live_lease_away(store: Store) -> None:
    run = claimed(store)
    given = calls.give_back(run, 1, owner=OWNER, incident=Incident(3, 7, 1, 9), why="rate limit", delay_ms=4_000)
    assert store.run(given) is Code.OK
    record = store.record(run)
    assert (record.attempt, record.attempt_progress, record.strikes, record.lost_at) == (3, 7, 1, 9)
    assert store.due_at(run) == store.now_ms + 4_000
    assert store.run(reads.read_events(run))[-1]["detail"] == "rate limit"


def test_a_reason_of_any_text_gives_a_turn_back(store: Store) -> None:
    run = claimed(store)
    given = calls.give_back(run, 1, owner=OWNER, incident=Incident(), why="cut \ud83d", delay_ms=0)
    assert store.run(given) is Code.OK
    assert store.run(reads.read_events(run))[-1]["detail"] == "cut \\ud83d"


def test_a_hand_over_counts_itself_and_leaves_the_incident_alone(store: Store) -> None:
    run = claimed(store)
    store.client.hset(run.run, mapping={"attempt": 4, "strikes": 2})
    store.run(calls.hand_over(run, 1, owner=OWNER, handovers=1, grace_ms=250))
    record = store.record(run)
    assert (record.handovers, record.attempt, record.strikes) == (1, 4, 2)
    assert store.due_at(run) == store.now_ms + 250
    assert owned(store, run) == []


def test_a_heartbeat_renews_the_lease_and_touches_no_progress(store: Store) -> None:
    run = claimed(store)
    begun = store.now_ms
    at = store.advance(1_000)
    assert beat(store, (run, 1, 0)) == [Code.OK]
    record = store.record(run)
    assert (record.lease_until, record.progress, record.progress_at) == (at + LEASE_MS, 0, begun)


def test_a_heartbeat_brings_credits_that_no_append_carried(store: Store) -> None:
    run = claimed(store)
    at = store.advance(1_000)
    beat(store, (run, 1, 3))
    assert (store.record(run).progress, store.record(run).progress_at) == (3, at)


def test_heartbeats_never_push_the_next_look_past_the_end_of_the_window(store: Store) -> None:
    """I10: a process that lives does not make a silent turn progress."""
    run = claimed(store, no_progress_ms=WINDOW_MS)
    silent_until = store.now_ms + WINDOW_MS + 1
    for _ in range(20):
        at = store.advance(1_000)
        beat(store, (run, 1, 0))
        assert store.due_at(run) == min(at + LEASE_MS, silent_until)
    beat(store, (run, 1, 1))
    assert store.due_at(run) == store.now_ms + LEASE_MS


def test_one_heartbeat_renews_many_turns_and_answers_each(store: Store) -> None:
    live, other = claimed(store), claimed(store, OTHER_RUN_ID)
    store.run(calls.cancel(other))
    gone = store.of(f"00{'f' * 24}")
    at = store.advance(100)
    answers = beat(store, (live, 1, 0), (gone, 1, 0), (other, 1, 0), (live, 9, 5))
    assert answers == [Code.OK, Code.UNKNOWN, Code.CANCELLED, Code.FENCED]
    assert [store.record(run).lease_until for run in (live, other)] == [at + LEASE_MS] * 2
    assert store.record(live).progress == 0
    assert beat(store) == []


def test_a_heartbeat_keeps_the_stream_alive(store: Store) -> None:
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    store.client.pexpire(run.stream, 5_000)
    beat(store, (run, 1, 0))
    assert store.ttl_ms(run.stream) > 5_000


def test_an_owner_that_is_known_to_be_gone_needs_no_lease_to_run_out(store: Store) -> None:
    run = claimed(store)
    at = store.advance(10)
    assert store.run(calls.expire_lease(run, owner="another", cause="x")) is Code.FENCED
    assert store.run(calls.expire_lease(run, owner=OWNER, cause="killed by signal 9")) is Code.OK
    record = store.record(run)
    assert (record.lease_until, record.lost_cause) == (at, "killed by signal 9")
    assert store.due_at(run) == at
    taken = calls.take_back(record, run, Incident(), cause=record.lost_cause, silent_ms=0, grace_ms=0)
    assert store.run(taken) is Code.OK
    claim(store, run, 1)
    assert store.record(run).lost_cause == "", "the next attempt begins without it"


def test_a_run_is_never_running_without_a_lease_or_a_look(store: Store) -> None:
    """BP-10: nothing makes a run invisible to every sweep."""
    run = created(store)
    steps: tuple[Call[Any], ...] = (
        calls.dispatched(run, 0, queue_check_ms=5_000),
        calls.claim(run, 0, owner=OWNER, token="t", lease_ms=LEASE_MS),
        calls.append(run, 1, batch(1, "a")),
        calls.beat(run.due, [(run, 1, 0)], lease_ms=LEASE_MS),
        calls.cancel(run),
        calls.expire_lease(run, owner=OWNER, cause="gone"),
        calls.take_due(store.keys, 0, limit=10, gap_ms=60_000),
        calls.reschedule(run, store.now_ms + 5),
    )
    for call in steps:
        store.run(call)
        assert store.due_at(run) is not None, call.name
        record = store.record(run)
        assert record.state is State.QUEUED or record.lease_until > 0, call.name
