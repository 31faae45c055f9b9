"""What can be asked about runs: one run, its message, its transitions, all live runs; and the request to cancel one.

Rule of this file: answers come from the store as it is; nothing here changes a run except `cancel`.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner import ids
from runner.core.transcript.reducer import Message
from runner.engine.rebuild import rebuild
from runner.engine.runtime import Links
from runner.engine.terminal import end_unclaimed
from runner.errors import RunNotFound
from runner.store import calls, reads
from runner.store.answers import Code
from runner.store.records import RunRecord


@dataclass(frozen=True, slots=True)
class RunView:
    """A run and its message so far (the whole message once it has ended)."""

    record: RunRecord
    message: Message


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel found. `landed` is False when the run had already ended; `state` is what it was then."""

    run_id: str
    landed: bool
    state: str


async def get(links: Links, run_id: str) -> RunView:
    """A run by its id. Raises RunNotFound."""
    run = links.keys.of_run(run_id)
    record = await links.store.run(reads.read_run(run))
    if record is None:
        raise RunNotFound(run_id)
    fold = await rebuild(links.store, run, record)
    return RunView(record, fold.message())


async def explain(links: Links, run_id: str) -> list[dict[str, str]]:
    """Every transition of a run, oldest first. Raises RunNotFound."""
    events = await links.store.run(reads.read_events(links.keys.of_run(run_id)))
    if not events:
        raise RunNotFound(run_id)
    return events


async def live_runs(links: Links, *, limit: int = 200) -> list[RunRecord]:
    """Up to `limit` runs that have not ended."""
    found: list[RunRecord] = []
    for run_ids in await links.store.run_many([reads.read_due(links.keys, p) for p in range(ids.PARTITIONS)]):
        wanted = run_ids[: limit - len(found)]
        records = await links.store.run_many([reads.read_run(links.keys.of_run(run_id)) for run_id in wanted])
        found += [record for record in records if record is not None]
        if len(found) >= limit:
            break
    return sorted(found, key=lambda record: record.created_at)


async def cancel(links: Links, run_id: str) -> Cancelled:
    """Asks that a run ends as cancelled. A queued run ends at once, a running one when its worker hears of it (at its
    next append or heartbeat), whatever crashes in between. Raises RunNotFound."""
    run = links.keys.of_run(run_id)
    answer = await links.store.run(calls.cancel(run))
    if answer.code is Code.UNKNOWN:
        raise RunNotFound(run_id)
    if answer.code is Code.TERMINAL:
        return Cancelled(run_id, landed=False, state=answer.state)
    if answer.state == "queued":
        await end_unclaimed(links, run, answer.epoch)
    return Cancelled(run_id, landed=True, state=answer.state)
