"""Runs made for a benchmark through the store's own calls: recorded, claimed, ready for a queue."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from runner import ids
from runner.core.recovery.budgets import Budgets
from runner.dispatch import Ticket
from runner.engine.runtime import Links
from runner.store import calls, reads
from runner.store.call import Arg
from runner.store.executor import AsyncExecutor
from runner.store.keys import Keys, RunKeys
from runner.store.records import VERSION, RunRecord

OWNER = "bench"
LONG_LEASE_MS = 3_600_000
_AT_ONCE = 500


async def record_runs(
    store: AsyncExecutor, keys: Keys, count: int, *, agent: str = "none", payload: Any = None
) -> list[RunKeys]:
    """`count` queued runs without budgets, which no supervisor need look at for an hour."""
    made: list[RunKeys] = []
    fields: tuple[Arg, ...] = (
        *("v", VERSION, "agent", agent, "payload", to_json({} if payload is None else {"input": payload})),
        *("thread", "", "key", "", "queue", "turns"),
        *("budgets", Budgets(no_progress_ms=None, attempts=None, lost_workers=None).model_dump_json()),
    )
    while len(made) < count:
        runs = [keys.of_run(ids.new_run_id()) for _ in range(min(_AT_ONCE, count - len(made)))]
        creates = [
            calls.create(keys, run, (*fields, "message_id", ids.new_message_id()), dispatch_grace_ms=LONG_LEASE_MS)
            for run in runs
        ]
        await store.run_many(creates)
        made += runs
    return made


async def claim_runs(store: AsyncExecutor, runs: list[RunKeys], *, owner: str = OWNER) -> None:
    """Makes `owner` run them, at epoch 1, on a lease of an hour."""
    for at in range(0, len(runs), _AT_ONCE):
        claims = [
            calls.claim(run, 0, owner=owner, token="1", lease_ms=LONG_LEASE_MS) for run in runs[at : at + _AT_ONCE]
        ]
        for claimed in await store.run_many(claims):
            assert claimed.record is not None, claimed.code


def tickets(runs: list[RunKeys]) -> list[Ticket]:
    """The tickets of queued runs that were never claimed."""
    return [Ticket(run.run_id, 0) for run in runs]


async def records(links: Links, runs: list[RunKeys]) -> list[RunRecord]:
    """Their records as they are now."""
    found: list[RunRecord] = []
    for at in range(0, len(runs), _AT_ONCE):
        read = await links.store.run_many([reads.read_run(run) for run in runs[at : at + _AT_ONCE]])
        found += [record for record in read if record is not None]
    return found
