"""Finish: the one door to finality (I1, I9, I19, I20)."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.run import ENDED, Ending, Reason, State
from runner.store import calls, reads
from runner.store.answers import Answer, Code
from runner.store.call import Call
from runner.store.calls import Closing
from runner.store.keys import RunKeys
from runner.store.records import Snapshot
from tests.support.store import LEASE_MS, OWNER, RETENTION_MS, Store, batch, claimed, created, texts

COMPLETED = Ending(State.COMPLETED, Reason.FINISHED)
CANCELLED = Ending(State.CANCELLED, Reason.CANCEL_REQUESTED)
SILENT = Ending(State.SEALED, Reason.NO_PROGRESS)


def finish(store: Store, run: RunKeys, epoch: int, ending: Ending, by: str = "owner", **closing: Any) -> Answer:
    """What that finish answers."""
    return store.run(
        calls.finish(run, epoch, ending, by=by, owner=OWNER, retention_ms=RETENTION_MS, closing=Closing(**closing))
    )


def test_the_last_chunks_and_the_terminal_go_in_together(store: Store) -> None:
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    assert finish(store, run, 1, COMPLETED, batch=batch(2, "b", "c")) == Answer(Code.OK, 3)
    assert store.entry_ids(run) == ["1-0", "3-0", "3-1"]
    entries = store.entries(run)
    assert texts(entries) == ["a", "b", "c"]
    terminal = entries[-1].terminal
    assert terminal is not None
    assert (terminal.run_id, terminal.state, terminal.reason) == (run.run_id, State.COMPLETED, "finished")
    record = store.record(run)
    assert (record.state, record.reason, record.seq, record.progress) == (State.COMPLETED, "finished", 3, 3)
    assert (record.ended_at, record.lease_until) == (store.now_ms, 0)


def test_a_run_without_chunks_still_gets_its_terminal(store: Store) -> None:
    run = created(store)
    assert finish(store, run, 0, CANCELLED, by="canceller") == Answer(Code.OK, 0)
    assert store.entry_ids(run) == ["0-1"]
    assert [entry.terminal is not None for entry in store.entries(run, after=0)] == [True]


@pytest.mark.parametrize("seen", range(4))
def test_a_reader_finds_the_terminal_from_every_cursor(store: Store, seen: int) -> None:
    run = claimed(store)
    for seq in (1, 2, 3):
        store.run(calls.append(run, 1, batch(seq, str(seq))))
    finish(store, run, 1, COMPLETED)
    left = store.entries(run, after=seen)
    assert texts(left) == [str(seq) for seq in range(seen + 1, 4)]
    assert [entry.terminal is not None for entry in left] == [False] * (3 - seen) + [True]


def test_a_repeated_finish_is_recognised_and_ends_once(store: Store) -> None:
    run = claimed(store)
    assert finish(store, run, 1, COMPLETED, batch=batch(1, "a")) == Answer(Code.OK, 1)
    before = store.contents()
    assert finish(store, run, 1, COMPLETED, batch=batch(1, "a")) == Answer(Code.OK, 1)
    assert finish(store, run, 1, SILENT, by="supervisor") == Answer(Code.TERMINAL, 1)
    assert finish(store, run, 1, Ending(State.FAILED, "x")) == Answer(Code.TERMINAL, 1)
    assert store.contents() == before


def test_the_last_chunks_must_follow_what_is_stored(store: Store) -> None:
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    before = store.contents()
    assert finish(store, run, 1, COMPLETED, batch=batch(3, "c")) == Answer(Code.GAP, 1)
    assert store.contents() == before


@pytest.mark.parametrize("state", sorted(ENDED))
def test_every_key_of_an_ended_run_has_a_lifetime(store: Store, state: State) -> None:
    """I20, whatever the end; the index and the owner's set forget the run."""
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    store.run(calls.remember(run, 1, "step:1", b"1", keep="first"))
    store.run(calls.save_snapshot(run, 1, Snapshot(seq=1, fold={})))
    store.client.hset(run.children, "call", "child")
    finish(store, run, 1, Ending(state, "a reason"))
    every = {run.run, run.stream, run.snapshot, run.ledger, run.children, run.events}
    assert {name: 0 < store.ttl_ms(name) <= RETENTION_MS for name in every} == dict.fromkeys(every, True)
    left = {name for name in store.contents() if run.run_id in name}
    assert left == every
    assert store.due_at(run) is None
    assert store.run(reads.read_owned(store.keys, run.partition, OWNER)) == []


def test_nothing_revives_an_ended_run_or_takes_its_lifetime_away(store: Store) -> None:
    run = claimed(store)
    finish(store, run, 1, COMPLETED)
    late: tuple[Call[Any], ...] = (
        calls.cancel(run),
        calls.reschedule(run, 42),
        calls.expire_lease(run, owner=OWNER, cause="late"),
        calls.dispatched(run, 1, queue_check_ms=1),
        calls.append(run, 1, batch(1, "late")),
        calls.remember(run, 1, "step:1", b"1", keep="last"),
        calls.save_snapshot(run, 1, Snapshot(seq=1, fold={})),
    )
    for call in late:
        store.run(call)
    assert store.entry_ids(run) == ["0-1"]
    assert store.due_at(run) is None
    assert all(store.ttl_ms(name) > 0 for name in store.contents() if run.run_id in name)


def test_the_final_message_replaces_the_snapshot_or_keeps_it(store: Store) -> None:
    run = claimed(store)
    store.run(calls.save_snapshot(run, 1, Snapshot(seq=0, fold={"step": 1})))
    kept = claimed(store, f"00{'d' * 24}")
    store.run(calls.save_snapshot(kept, 1, Snapshot(seq=0, fold={"step": 1})))
    finish(store, run, 1, COMPLETED, snapshot=Snapshot(seq=9, fold={}).model_dump_json().encode())
    finish(store, kept, 1, COMPLETED)
    stored = [store.run(reads.read_snapshot(keys)) for keys in (run, kept)]
    assert [snapshot and snapshot.seq for snapshot in stored] == [9, 0]


def test_a_cancel_that_came_first_wins_over_completing(store: Store) -> None:
    """I19."""
    run = claimed(store)
    store.run(calls.cancel(run))
    assert finish(store, run, 1, COMPLETED, batch=batch(1, "a")).code is Code.CANCELLED
    assert finish(store, run, 1, CANCELLED, batch=batch(1, "a")) == Answer(Code.OK, 1)
    assert store.record(run).state is State.CANCELLED


def test_a_verdict_about_silence_holds_only_while_the_run_is_silent(store: Store) -> None:
    """I9."""
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    judged = store.record(run).progress
    store.run(calls.append(run, 1, batch(2, "b")))
    assert finish(store, run, 1, SILENT, by="supervisor", judged_progress=judged).code is Code.FENCED
    assert store.record(run).state is State.RUNNING
    assert finish(store, run, 1, SILENT, by="supervisor", judged_progress=judged + 1).code is Code.OK


def test_a_verdict_about_a_loss_holds_only_while_the_lease_is_over(store: Store) -> None:
    """A beat that came after the verdict shows that nothing was lost."""
    run = claimed(store)
    lost = Ending(State.SEALED, Reason.LOST_WORKERS)
    assert finish(store, run, 1, lost, by="supervisor").code is Code.FENCED
    store.run(calls.expire_lease(run, owner=OWNER, cause="signal SIGKILL"))
    assert finish(store, run, 1, lost, by="supervisor").code is Code.OK


def test_credits_of_a_heartbeat_count_as_no_longer_silent(store: Store) -> None:
    run = claimed(store)
    store.run(calls.beat(run.due, [(run, 1, 1)], lease_ms=LEASE_MS))
    assert finish(store, run, 1, SILENT, by="supervisor", judged_progress=0).code is Code.FENCED


def test_the_log_of_transitions_names_the_end_and_its_reason(store: Store) -> None:
    run = claimed(store)
    finish(store, run, 1, SILENT, by="supervisor", judged_progress=0)
    events = store.run(reads.read_events(run))
    assert [event["what"] for event in events] == ["created", "claimed", "sealed"]
    assert events[-1] == {
        "at": str(store.now_ms),
        "what": "sealed",
        "epoch": "1",
        "detail": Reason.NO_PROGRESS.value,
    }


@pytest.mark.parametrize("text", ["é😀", "\ud83d", "a\udcffb", "\u0000", "line\nline"])
def test_an_error_of_any_text_ends_the_run(store: Store, text: str) -> None:
    """I20: what an agent raised may hold half a character; the run ends all the same."""
    run = claimed(store)
    assert finish(store, run, 1, Ending(State.FAILED, Reason.AGENT_ERROR, text)).code is Code.OK
    terminal = store.entries(run)[-1].terminal
    assert terminal is not None
    assert terminal.error == store.record(run).error
    readable = "".join(char for char in text if not "\ud800" <= char <= "\udfff")
    assert [char for char in readable if char not in terminal.error] == []
