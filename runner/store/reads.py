"""Builders of every read: pure functions to a `Call` that changes nothing.

Rules of this file: no I/O; a read may be repeated freely and may be a moment old; only an act decides.
"""

from __future__ import annotations

import json
from typing import Any

from runner.core.transcript.chunk import decode_batch
from runner.errors import RecordUnreadable
from runner.store.answers import Entry, pairs
from runner.store.call import Call
from runner.store.keys import Keys, RunKeys
from runner.store.records import (
    ProcessFacts,
    RunRecord,
    Snapshot,
    Terminal,
    read_process,
    read_record,
    read_snapshot_json,
)


def read_processes(key: str) -> Call[list[ProcessFacts]]:
    """The processes that live, by id."""

    def parse(raw: Any) -> list[ProcessFacts]:
        return sorted(
            (read_process(value) for value in pairs(raw).values()),
            key=lambda facts: facts.id,
        )

    return Call("HGETALL", parse, (), (key,), is_act=False)


def look_at_run(run: RunKeys) -> Call[RunRecord | RecordUnreadable | None]:
    """As `read_run`, with an unreadable record as a value: one of them must not hide the others of a trip."""

    def parse(raw: Any) -> RunRecord | RecordUnreadable | None:
        try:
            return read_record(run.run_id, pairs(raw))
        except RecordUnreadable as why:
            return why

    return Call("HGETALL", parse, (), (run.run,), is_act=False)


def read_run(run: RunKeys) -> Call[RunRecord | None]:
    """The record, or None."""
    return Call(
        "HGETALL",
        lambda raw: read_record(run.run_id, pairs(raw)),
        (),
        (run.run,),
        is_act=False,
    )


def read_time() -> Call[int]:
    """The server's clock in ms."""
    return Call("TIME", lambda raw: int(raw[0]) * 1_000 + int(raw[1]) // 1_000, (), is_act=False)


def read_fresh_from(run: RunKeys) -> Call[int]:
    """The end of the last outage that a sweep of the run's partition noticed, in ms; 0 when there was none."""
    return Call("HGET", lambda raw: int(raw or 0), ("fresh_from",), (run.sweep,), is_act=False)


def read_snapshot(run: RunKeys) -> Call[Snapshot | None]:
    """The stored snapshot, or None."""
    return Call(
        "GET",
        lambda raw: read_snapshot_json(raw) if raw else None,
        (),
        (run.snapshot,),
        is_act=False,
    )


def read_ledger(run: RunKeys) -> Call[dict[str, bytes]]:
    """Every remembered value of a turn, by field."""
    return Call(
        "HGETALL",
        lambda raw: {k.decode(): v for k, v in pairs(raw).items()},
        (),
        (run.ledger,),
        is_act=False,
    )


def read_stream(run: RunKeys, *, after: int, count: int) -> Call[list[Entry]]:
    """Up to `count` entries behind the cursor `after`."""
    return Call(
        "XRANGE",
        lambda raw: [read_entry(*item) for item in raw or ()],
        (f"({after}-0", "+", "COUNT", count),
        (run.stream,),
        is_act=False,
    )


def read_events(run: RunKeys) -> Call[list[dict[str, str]]]:
    """Every transition kept, oldest first: `at` (ms), `what`, `epoch`, `detail`."""

    def parse(raw: Any) -> list[dict[str, str]]:
        return [{k.decode(): v.decode("utf-8", "replace") for k, v in pairs(fields).items()} for _, fields in raw or ()]

    return Call("XRANGE", parse, ("-", "+"), (run.events,), is_act=False)


def read_owned(keys: Keys, partition: int, process_id: str) -> Call[list[str]]:
    """The runs that a process owns in a partition."""
    name = keys.owned(partition, process_id)
    return Call(
        "SMEMBERS",
        lambda raw: sorted(item.decode() for item in raw),
        (),
        (name,),
        is_act=False,
    )


def read_due(keys: Keys, partition: int) -> Call[list[str]]:
    """Every live run of a partition, next to be looked at first."""
    return Call(
        "ZRANGE",
        lambda raw: [item.decode() for item in raw],
        (0, -1),
        (keys.due(partition),),
        is_act=False,
    )


def read_entry(entry_id: bytes, fields: Any) -> Entry:
    """One raw stream entry. A terminal's id ends in -1, everything else in -0."""
    values = pairs(fields)
    last_seq, epoch = int(entry_id.partition(b"-")[0]), int(values[b"e"])
    if b"t" in values:
        return Entry(last_seq, epoch, terminal=Terminal.model_validate(json.loads(values[b"t"])))
    return Entry(last_seq, epoch, tuple(decode_batch(values[b"c"])))
