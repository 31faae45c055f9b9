"""What a run has given out so far, read back from what is durable.

Rule of this file: snapshot plus tail equals the whole stream; the reader's message and the next attempt's partial are
the same value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from runner.core.transcript.reducer import Fold
from runner.store import reads
from runner.store.answers import Entry
from runner.store.executor import AsyncExecutor
from runner.store.keys import RunKeys
from runner.store.records import RunRecord

PAGE_ENTRIES = 512
"""Stream entries read at a time."""


async def rebuild(store: AsyncExecutor, run: RunKeys, record: RunRecord) -> Fold:
    """The fold of everything stored up to the record's last seq."""
    if record.seq == 0:
        return Fold(record.message_id)
    snapshot = await store.run(reads.read_snapshot(run))
    if snapshot is not None and snapshot.seq > record.seq:
        snapshot = None  # the server lost chunks that it covers, so the stream no longer says what it says
    fold = Fold(record.message_id) if snapshot is None else Fold.load(snapshot.fold)
    covered = 0 if snapshot is None else snapshot.seq
    async for entry in pages(store, run, after=covered):
        for chunk in chunks_after(entry, covered):
            fold.apply(chunk)
    return fold


async def pages(store: AsyncExecutor, run: RunKeys, *, after: int) -> AsyncIterator[Entry]:
    """Every stored entry behind a seq, in order, read in pages."""
    while True:
        page = await store.run(reads.read_stream(run, after=after, count=PAGE_ENTRIES))
        for entry in page:
            yield entry
        if len(page) < PAGE_ENTRIES or page[-1].terminal is not None:
            return
        after = page[-1].last_seq


def chunks_after(entry: Entry, after: int) -> tuple[dict[str, object], ...]:
    """The chunks of an entry that lie behind a seq: a cursor may point into a batch."""
    first = entry.last_seq - len(entry.chunks) + 1
    return entry.chunks[max(0, after + 1 - first) :]
