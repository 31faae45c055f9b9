"""Append: exactly once, without gaps, and readable from every cursor (I17, BP-29, BP-30, BP-34)."""

from __future__ import annotations

from typing import Any

from runner.store import calls, reads
from runner.store.answers import Answer, Code
from tests.support.store import Store, batch, claimed, created, texts


def test_a_batch_is_one_entry_named_by_its_last_seq(store: Store) -> None:
    run = claimed(store)
    assert store.run(calls.append(run, 1, batch(1, "a", "b", "c"))) == Answer(Code.OK, 3)
    assert store.run(calls.append(run, 1, batch(4, "d"))) == Answer(Code.OK, 4)
    assert store.entry_ids(run) == ["3-0", "4-0"]
    assert [(entry.last_seq, entry.epoch, texts([entry])) for entry in store.entries(run)] == [
        (3, 1, ["a", "b", "c"]),
        (4, 1, ["d"]),
    ]
    assert store.record(run).seq == 4


def test_a_repeated_append_is_recognised_and_stored_once(store: Store) -> None:
    run = claimed(store)
    first = calls.append(run, 1, batch(1, "a", "b"))
    store.run(first)
    progress = store.record(run).progress
    assert store.run(first) == Answer(Code.OK, 2)
    store.run(calls.append(run, 1, batch(3, "c")))
    assert store.run(first) == Answer(Code.OK, 3), "an older one too"
    assert texts(store.entries(run)) == ["a", "b", "c"]
    assert progress == 2
    assert store.record(run).progress == 3


def test_an_append_whose_reply_was_lost_before_a_cancel_still_counts_as_stored(store: Store) -> None:
    run = claimed(store)
    sent = calls.append(run, 1, batch(1, "a"))
    store.run(sent)
    store.run(calls.cancel(run))
    assert store.run(sent) == Answer(Code.OK, 1)
    assert store.run(calls.append(run, 1, batch(2, "b"))) == Answer(Code.CANCELLED, 1)


def test_a_gap_is_refused_and_tells_what_is_stored(store: Store) -> None:
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    before = store.contents()
    assert store.run(calls.append(run, 1, batch(3, "c"))) == Answer(Code.GAP, 1)
    assert store.run(calls.append(run, 1, batch(1, "a", "b"))) == Answer(Code.GAP, 1), "an overlap is no repetition"
    assert store.contents() == before


def test_progress_counts_what_is_credited_and_is_stamped_only_then(store: Store) -> None:
    run = claimed(store)
    begun = store.now_ms
    store.advance(100)
    store.run(calls.append(run, 1, batch(1, "a", "b", credited=0)))
    assert (store.record(run).progress, store.record(run).progress_at) == (0, begun)
    at = store.advance(100)
    store.run(calls.append(run, 1, batch(3, "c", "d", credited=1)))
    assert (store.record(run).progress, store.record(run).progress_at) == (1, at)


def test_a_stream_has_a_lifetime_from_its_first_entry_and_every_append_pushes_it_on(store: Store) -> None:
    """BP-34."""
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    assert 0 < store.ttl_ms(run.stream) <= calls.ALIVE_MS
    store.client.pexpire(run.stream, 5_000)
    store.run(calls.append(run, 1, batch(2, "b")))
    assert 5_000 < store.ttl_ms(run.stream) <= calls.ALIVE_MS


def test_a_cursor_is_a_number_and_not_a_text(store: Store) -> None:
    """BP-29: after 10 come 11 to 14, and nothing of 2 to 9."""
    run = claimed(store)
    for seq in range(1, 15):
        store.run(calls.append(run, 1, batch(seq, str(seq))))
    assert texts(store.entries(run, after=10)) == ["11", "12", "13", "14"]
    assert texts(store.entries(run, after=14)) == []
    assert texts(store.run(reads.read_stream(run, after=8, count=3))) == ["9", "10", "11"]


def test_a_cursor_within_a_batch_finds_that_batch(store: Store) -> None:
    """The reader drops what it has: an entry is found by its last seq."""
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a", "b", "c")))
    assert [entry.last_seq for entry in store.entries(run, after=2)] == [3]


def test_what_is_appended_between_two_reads_is_read(store: Store) -> None:
    """BP-30: a cursor moves only to what was delivered."""
    run = claimed(store)
    cursor, seen = 0, list[str]()
    for seq in range(1, 41):
        if seq % 3:
            entries = store.entries(run, after=cursor)
            seen += texts(entries)
            cursor = entries[-1].last_seq if entries else cursor
        store.run(calls.append(run, 1, batch(seq, str(seq))))
    seen += texts(store.entries(run, after=cursor))
    assert seen == [str(seq) for seq in range(1, 41)]


def test_chunks_come_back_as_they_were_given(store: Store) -> None:
    run = claimed(store)
    odd = ["", "\u0000", "é😀", "\ud83d", '"]', "x" * 100_000]
    store.run(calls.append(run, 1, batch(1, *odd)))
    assert texts(store.entries(run)) == odd


def test_seqs_go_on_over_attempts(store: Store) -> None:
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a", "b")))
    store.run(calls.hand_over(run, 1, owner="worker-1", handovers=1, grace_ms=0))
    record = store.run(calls.claim(run, 1, owner="worker-2", token="worker-2/1", lease_ms=500)).record
    assert record is not None
    assert (record.epoch, record.seq) == (2, 2)
    assert store.run(calls.append(run, 2, batch(3, "c"))) == Answer(Code.OK, 3)
    assert [(entry.last_seq, entry.epoch) for entry in store.entries(run)] == [(2, 1), (3, 2)]


def test_a_run_without_chunks_reads_as_empty(store: Store) -> None:
    assert store.entries(created(store)) == []


def test_an_entry_reads_the_same_from_both_protocols(store: Store) -> None:
    run = claimed(store)
    store.run(calls.append(run, 1, batch(1, "a")))
    raw: Any = store.client.xrange(run.stream)
    flat = [word for pair in raw[0][1].items() for word in pair]
    assert reads.read_entry(raw[0][0], flat) == reads.read_entry(raw[0][0], raw[0][1])
