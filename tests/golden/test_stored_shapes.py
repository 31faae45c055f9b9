"""What the first release stored can be read for ever, and is still written.

Rules of this file: a golden file is never changed. A later version may add optional fields and a folder of its own.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runner.core.recovery.budgets import Budgets
from runner.core.recovery.evaluate import Incident
from runner.core.run import Ending, Reason, State
from runner.core.transcript import chunk
from runner.core.transcript.reducer import Fold, fold_all
from runner.ids import payload_digest
from runner.store import calls, reads
from runner.store.answers import Batch, Code, Entry
from runner.store.call import Call
from runner.store.keys import Keys, RunKeys
from runner.store.records import ProcessFacts, RunRecord, Snapshot, Terminal, read_process, read_record
from tests.support.store import LEASE_MS, MESSAGE_ID, RETENTION_MS, RUN_ID, Store, fake_store

V1 = Path(__file__).parent / "v1"
SHAPES = (
    *("record_queued", "record_running", "record_lost", "record_ended", "record_cancelling"),
    *("entry", "terminal_entry", "snapshot", "event", "idempotency", "process", "sweep"),
)
CHUNKS: list[chunk.Chunk] = [
    chunk.start(MESSAGE_ID),
    chunk.start_step(),
    {"type": "text-start", "id": "r1:0"},
    {"type": "text-delta", "id": "r1:0", "delta": "é😀"},
]
FACTS = ProcessFacts(id="h-1-abc", pid=7, parent_pid=6, host="h", running=2, capacity=100, queue="turns")


def golden(name: str) -> dict[str, Any]:
    """What the first release stored."""
    stored: dict[str, Any] = json.loads((V1 / f"{name}.json").read_text(encoding="utf-8"))
    return stored


def as_hash(fields: dict[str, str]) -> dict[bytes, bytes]:
    """A hash as the server answers it."""
    return {key.encode(): value.encode() for key, value in fields.items()}


# What today's writers store


def _submission(store: Store) -> Call[Any]:
    fields = (
        *("v", 1, "agent", "echo", "payload", '{"message":"hi"}', "message_id", MESSAGE_ID, "thread", "t-1"),
        *("key", "k-1", "queue", "turns", "budgets", Budgets().model_dump_json(), "no_progress_ms", 300_000),
    )
    idempotency = ("k-1", payload_digest(b"hi"), 60_000)
    return calls.create(store.keys, store.of(), fields, dispatch_grace_ms=2_000, idempotency=idempotency)


def _claim(run: RunKeys, epoch: int) -> Call[Any]:
    return calls.claim(run, epoch, owner="w-1", token=f"w-1/{epoch}", lease_ms=LEASE_MS)


def _story(store: Store) -> dict[str, dict[str, Any]]:
    """The life of one run that was lost once and failed in the end, with what was stored on the way."""
    run, seen = store.of(), dict[str, dict[str, Any]]()
    store.run(_submission(store))
    store.run(calls.dispatched(run, 0, queue_check_ms=5_000))
    seen["record_queued"] = store.fields(run)
    store.advance(100)
    store.run(_claim(run, 0))
    store.advance(100)
    store.run(calls.append(run, 1, Batch(1, 4, chunk.join([chunk.encode(item) for item in CHUNKS]), 2)))
    store.run(calls.save_snapshot(run, 1, Snapshot(seq=4, fold=fold_all(MESSAGE_ID, CHUNKS).dump())))
    seen["record_running"] = store.fields(run)
    store.run(calls.expire_lease(run, owner="w-1", cause="killed by signal 9"))
    seen["record_lost"] = store.fields(run)
    incident = Incident(attempt=1, progress=2, strikes=1, lost_at_ms=store.now_ms)
    taken = calls.take_back(store.record(run), run, incident, cause="killed by signal 9", silent_ms=0, grace_ms=0)
    store.run(taken)
    store.run(_claim(run, 1))
    store.run(calls.cancel(run))
    seen["record_cancelling"] = store.fields(run)
    store.client.hdel(run.run, "cancel_at")
    ending = Ending(State.FAILED, Reason.AGENT_ERROR, "ValueError: no")
    store.run(calls.finish(run, 2, ending, by="owner", owner="w-1", retention_ms=RETENTION_MS))
    seen["record_ended"] = store.fields(run)
    return seen


@cache
def written_today() -> dict[str, dict[str, Any]]:
    """Every shape, as this version stores it."""
    with fake_store() as store:
        seen, run = _story(store), store.of()
        first, last = _raw_entries(store, run.stream)
        seen |= {"entry": first, "terminal_entry": last}
        seen["snapshot"] = json.loads(_bytes(store.client.get(run.snapshot)))
        seen["event"] = _raw_entries(store, run.events)[-1]["fields"]
        seen["idempotency"] = {"value": _bytes(store.client.get(store.keys.idempotency(0, "k-1"))).decode()}
        store.run(calls.process_beat(store.keys.workers, FACTS))
        seen["process"] = {"value": _bytes(store.client.hget(store.keys.workers, FACTS.id)).decode()}
        for gap in (0, 10_000):
            store.advance(gap)
            store.run(calls.take_due(store.keys, 0, limit=1, gap_ms=1_000))
        raw: Any = store.client.hgetall(store.keys.sweep(0))
        seen["sweep"] = {key.decode(): value.decode() for key, value in raw.items()}
        return seen


def _raw_entries(store: Store, name: str) -> list[dict[str, Any]]:
    raw: Any = store.client.xrange(name)
    return [
        {"id": entry_id.decode(), "fields": {key.decode(): value.decode() for key, value in fields.items()}}
        for entry_id, fields in raw
    ]


def _put(store: Store, name: str, fields: dict[str, str]) -> None:
    for field, value in fields.items():
        store.client.hset(name, field, value)


def _bytes(raw: Any) -> bytes:
    assert isinstance(raw, bytes)
    return raw


@pytest.mark.parametrize("name", SHAPES)
def test_what_was_stored_is_still_written(name: str) -> None:
    today = written_today()[name]
    assert {field: today.get(field) for field in golden(name)} == golden(name)


def test_every_shape_has_its_file_and_every_file_its_shape() -> None:
    assert {path.stem for path in V1.iterdir()} == set(SHAPES) == set(written_today())


# What today's readers make of it


def test_a_queued_record() -> None:
    record = read_record(RUN_ID, as_hash(golden("record_queued")))
    assert record is not None
    assert (record.v, record.run_id, record.agent, record.state) == (1, RUN_ID, "echo", State.QUEUED)
    assert (record.thread, record.key, record.queue, record.message_id) == ("t-1", "k-1", "turns", MESSAGE_ID)
    assert record.request == {"message": "hi"}
    assert (record.dispatch, record.dispatches, record.epoch) == ("sent", 1, 0)
    facts = record.facts()
    assert (facts.budgets, facts.incident, facts.dispatch_pending) == (Budgets(), Incident(), False)


def test_a_running_record() -> None:
    record = read_record(RUN_ID, as_hash(golden("record_running")))
    assert record is not None
    assert (record.state, record.owner, record.epoch, record.seq, record.progress) == (State.RUNNING, "w-1", 1, 4, 2)
    assert (record.claimed_at, record.progress_at, record.step_at) == (1_000_100, 1_000_200, 1_000_200)
    facts = record.facts()
    assert (facts.lease_until_ms, facts.progress_at_ms, facts.step_at_ms) == (1_005_100, 1_000_200, 1_000_200)
    assert not facts.cancel_requested


def test_a_lost_record() -> None:
    record = read_record(RUN_ID, as_hash(golden("record_lost")))
    assert record is not None
    assert (record.facts().lost_cause, record.lease_until) == ("killed by signal 9", 1_000_200)


def test_a_record_that_is_cancelling() -> None:
    record = read_record(RUN_ID, as_hash(golden("record_cancelling")))
    assert record is not None
    assert record.facts().cancel_requested
    assert record.facts().incident == Incident(1, 2, 1, 1_000_200)
    assert record.attempts == 2


def test_an_ended_record() -> None:
    record = read_record(RUN_ID, as_hash(golden("record_ended")))
    assert record is not None
    assert (record.state, record.reason, record.error) == (State.FAILED, "agent_error", "ValueError: no")
    assert (record.ended_at, record.lease_until, record.epoch) == (1_000_200, 0, 2)


def test_an_entry_of_chunks_and_the_terminal() -> None:
    first, last = golden("entry"), golden("terminal_entry")
    assert reads.read_entry(first["id"].encode(), as_hash(first["fields"])) == Entry(4, 1, tuple(CHUNKS))
    terminal = Terminal(run_id=RUN_ID, state=State.FAILED, reason="agent_error", error="ValueError: no")
    assert reads.read_entry(last["id"].encode(), as_hash(last["fields"])) == Entry(4, 2, terminal=terminal)


def test_a_snapshot_goes_on_where_it_was_taken() -> None:
    snapshot = reads.read_snapshot(Keys().of_run(RUN_ID)).parse(json.dumps(golden("snapshot")).encode())
    assert snapshot is not None
    fold = Fold.load(snapshot.fold)
    assert snapshot.seq == 4
    assert fold.dump() == fold_all(MESSAGE_ID, CHUNKS).dump()
    fold.apply({"type": "text-delta", "id": "r1:0", "delta": "!"})
    assert fold.text() == "é😀!"


def test_a_process() -> None:
    found = read_process(golden("process")["value"].encode())
    assert found == FACTS.model_copy(update={"last_beat_ms": 1_000_200})


def test_an_idempotency_key_and_a_sweep() -> None:
    """Read by scripts only: what they wrote must still answer the same."""
    with fake_store() as store:
        store.client.set(store.keys.idempotency(0, "k-1"), golden("idempotency")["value"])
        _put(store, store.keys.sweep(0), golden("sweep"))
        created = store.run(_submission(store))
        assert (created.code, created.run_id) == (Code.TAKEN, RUN_ID)
        due = store.run(calls.take_due(store.keys, 0, limit=1, gap_ms=10**9))
        assert due.fresh_from_ms == int(golden("sweep")["fresh_from"])


# What a later version may have added (I16)

LATER = {"of_a_later_version": "kept"}


def test_unknown_fields_of_a_record_survive_reading_and_acts() -> None:
    record = read_record(RUN_ID, as_hash({**golden("record_running"), **LATER}))
    assert record is not None
    assert LATER.items() <= record.model_dump().items()
    with fake_store() as store:
        run = store.of()
        _put(store, run.run, {**golden("record_queued"), **LATER})
        claimed: RunRecord = store.run(_claim(run, 0)).record
        assert LATER.items() <= claimed.model_dump().items()
        store.run(calls.finish(run, 1, Ending(State.COMPLETED, "x"), by="owner", owner="w-1", retention_ms=1_000))
        assert LATER.items() <= store.fields(run).items()


def test_unknown_fields_of_the_other_shapes_survive_reading() -> None:
    terminal = Terminal.model_validate({**json.loads(golden("terminal_entry")["fields"]["t"]), **LATER})
    snapshot = Snapshot.model_validate({**golden("snapshot"), **LATER})
    at, _, facts = golden("process")["value"].partition(" ")
    process = read_process(f"{at} {json.dumps({**json.loads(facts), **LATER})}".encode())
    for shape in (terminal, snapshot, process):
        assert LATER.items() <= shape.model_dump().items()


def test_unknown_fields_of_an_entry_do_not_hide_it() -> None:
    first = golden("entry")
    entry = reads.read_entry(first["id"].encode(), as_hash({**first["fields"], **LATER}))
    assert entry.chunks == tuple(CHUNKS)
