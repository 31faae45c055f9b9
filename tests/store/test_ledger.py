"""What a turn keeps across its attempts: memoised steps, the stash, the message so far; and who lives."""

from __future__ import annotations

import redis

from runner.store import calls, reads
from runner.store.answers import Code
from runner.store.records import ProcessFacts, Snapshot
from tests.support.store import Store, batch, claimed, real_clock


def facts(process_id: str, running: int = 0) -> ProcessFacts:
    return ProcessFacts(id=process_id, pid=1, parent_pid=0, host="h", running=running, capacity=4, queue="turns")


def test_the_first_result_of_a_step_stands(store: Store) -> None:
    run = claimed(store)
    for value in (b'{"n":1}', b'{"n":2}', b'{"n":1}'):
        assert store.run(calls.remember(run, 1, "step:a", value, keep="first")) == (Code.OK, b'{"n":1}')
    assert store.run(reads.read_ledger(run)) == {"step:a": b'{"n":1}'}


def test_the_last_stash_stands(store: Store) -> None:
    run = claimed(store)
    for value in (b"1", b"2"):
        assert store.run(calls.remember(run, 1, "stash", value, keep="last")) == (Code.OK, value)
    assert store.run(reads.read_ledger(run)) == {"stash": b"2"}


def test_a_zombie_records_nothing_and_the_next_attempt_finds_what_was_recorded(store: Store) -> None:
    run = claimed(store)
    store.run(calls.remember(run, 1, "step:a", b"1", keep="first"))
    store.run(calls.hand_over(run, 1, owner="worker-1", handovers=1, grace_ms=0))
    store.run(calls.claim(run, 1, owner="worker-2", token="t", lease_ms=500))
    assert store.run(calls.remember(run, 1, "step:b", b"late", keep="first")) == (Code.FENCED, b"")
    assert store.run(calls.remember(run, 2, "step:a", b"again", keep="first")) == (Code.OK, b"1")
    assert store.run(reads.read_ledger(run)) == {"step:a": b"1"}


def test_a_step_that_ran_is_recorded_though_its_run_is_cancelling(store: Store) -> None:
    run = claimed(store)
    store.run(calls.cancel(run))
    assert store.run(calls.remember(run, 1, "step:a", b"1", keep="first")) == (Code.CANCELLED, b"")
    assert store.run(reads.read_ledger(run)) == {"step:a": b"1"}


def test_a_snapshot_is_the_last_one_and_stamps_the_step(store: Store) -> None:
    run = claimed(store)
    for seq in (1, 2):
        store.run(calls.append(run, 1, batch(seq, "x")))
        at = store.advance(50)
        assert store.run(calls.save_snapshot(run, 1, Snapshot(seq=seq, fold={"n": seq}))) is Code.OK
        assert store.record(run).step_at == at
    assert store.run(reads.read_snapshot(run)) == Snapshot(seq=2, fold={"n": 2})


def test_a_snapshot_of_more_than_is_stored_is_refused(store: Store) -> None:
    """A server that lost data must not be given a message that its stream does not hold."""
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "x")))
    assert store.run(calls.save_snapshot(run, 1, Snapshot(seq=2, fold={}))) is Code.GAP
    assert store.run(reads.read_snapshot(run)) is None


def test_a_snapshot_may_end_in_half_a_character(store: Store) -> None:
    run = claimed(store)
    half = Snapshot(seq=0, fold={"text": "\ud83d", "é": None})
    assert store.run(calls.save_snapshot(run, 1, half)) is Code.OK
    assert store.run(reads.read_snapshot(run)) == half


def test_processes_are_listed_with_their_last_beat(store: Store) -> None:
    key = store.keys.workers
    assert store.run(calls.process_beat(key, facts("b"))) == store.now_ms
    at = store.advance(10)
    store.run(calls.process_beat(key, facts("a", running=3)))
    listed = store.run(reads.read_processes(key))
    assert [(process.id, process.running, process.last_beat_ms) for process in listed] == [
        ("a", 3, at),
        ("b", 0, at - 10),
    ]
    assert store.run(calls.forget_process(key, "a")) == 1
    assert [process.id for process in store.run(reads.read_processes(key))] == ["b"]


def test_a_beat_removes_processes_that_fell_silent(store: Store) -> None:
    key = store.keys.workers
    store.run(calls.process_beat(key, facts("silent")))
    store.client.hset(key, "broken", "no time in front")
    store.advance(calls.STALE_PROCESS_MS)
    store.run(calls.process_beat(key, facts("live")))
    assert [process.id for process in store.run(reads.read_processes(key))] == ["live", "silent"]
    store.advance(1)
    store.run(calls.process_beat(key, facts("live")))
    assert [process.id for process in store.run(reads.read_processes(key))] == ["live"]


def test_the_clock_of_every_act_is_the_servers(store: Store) -> None:
    """The one test on the real clock: everything else moves it by hand."""

    def server_ms(client: redis.Redis) -> int:
        seconds, micros = client.time()
        return int(seconds) * 1_000 + int(micros) // 1_000

    with real_clock(store) as live:
        before = server_ms(live.client)
        answered = live.run(calls.process_beat(live.keys.workers, facts("a")))
        run = claimed(live)
        after = server_ms(live.client)
        record = live.record(run)
        assert before <= answered <= record.created_at <= record.claimed_at <= after
        assert record.created_at > 1_600_000_000_000
