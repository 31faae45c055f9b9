"""The shapes that are stored.

Rules of this file: every field of a later version is optional; a reader keeps what it does not know; times are ms of
the server's clock. Golden files in the tests hold one of each shape for ever.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from runner.core.recovery.budgets import Budgets
from runner.core.recovery.evaluate import Incident, RunFacts
from runner.core.run import State
from runner.core.transcript.chunk import to_bytes
from runner.errors import RecordUnreadable

VERSION = 1


class RunRecord(BaseModel):
    """A run as its record tells it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    v: int = VERSION
    run_id: str
    agent: str
    state: State
    reason: str = ""
    error: str = ""
    epoch: int = 0
    seq: int = 0
    progress: int = 0
    attempts: int = 0
    handovers: int = 0
    message_id: str
    payload: str = "{}"
    thread: str = ""
    key: str = ""
    queue: str = ""
    owner: str = ""
    dispatch: str = ""
    dispatches: int = 0
    created_at: int = 0
    queued_at: int = 0
    started_at: int = 0
    claimed_at: int = 0
    ended_at: int = 0
    cancel_at: int = 0
    lease_until: int = 0
    progress_at: int = 0
    step_at: int = 0
    lost_cause: str = ""
    attempt: int = 1
    attempt_progress: int = 0
    strikes: int = 0
    lost_at: int = 0
    budgets: str = "{}"

    @property
    def request(self) -> dict[str, Any]:
        """What was submitted: `input` and `message`."""
        value: dict[str, Any] = json.loads(self.payload)
        return value

    def facts(self) -> RunFacts:
        """What a verdict depends on."""
        return RunFacts(
            state=self.state,
            epoch=self.epoch,
            progress=self.progress,
            progress_at_ms=self.progress_at,
            lease_until_ms=self.lease_until,
            step_at_ms=self.step_at,
            cancel_requested=self.cancel_at > 0,
            dispatch_pending=self.dispatch == "pending",
            lost_cause=self.lost_cause,
            incident=Incident(self.attempt, self.attempt_progress, self.strikes, self.lost_at),
            budgets=self.limits(),
        )

    def limits(self) -> Budgets:
        """The budgets that the run was submitted with."""
        return Budgets.model_validate_json(self.budgets)


def read_record(run_id: str, fields: dict[bytes, bytes]) -> RunRecord | None:
    """The record that a hash holds; None for an empty hash. Raises RecordUnreadable."""
    if not fields:
        return None
    values = {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in fields.items()}
    try:
        record = RunRecord.model_validate({**values, "run_id": run_id})
        record.limits()
    except ValidationError as why:
        raise RecordUnreadable(run_id, f"{why.error_count()} fields: {why.errors()[0]['loc']}") from None
    return record


def incident_fields(incident: Incident) -> tuple[str | int, ...]:
    """An incident as field, value.. of the record."""
    return (
        *("attempt", incident.attempt),
        *("attempt_progress", incident.progress),
        *("strikes", incident.strikes),
        *("lost_at", incident.lost_at_ms),
    )


def storable(text: str) -> str:
    """`text` with half characters as escapes: what an agent raised may hold one, and UTF-8 cannot."""
    return text.encode("utf-8", "backslashreplace").decode()


class Terminal(BaseModel):
    """The last entry of a stream: how the run ended."""

    model_config = ConfigDict(extra="allow", frozen=True)

    v: int = VERSION
    run_id: str
    state: State
    reason: str
    error: str = ""


class Snapshot(BaseModel):
    """The message so far (as `Fold.dump` wrote it) and the last seq it covers."""

    model_config = ConfigDict(extra="allow", frozen=True)

    v: int = VERSION
    seq: int
    fold: dict[str, Any]

    def to_json(self) -> bytes:
        """As it is stored. A delta may end in half a character, which pydantic's JSON neither writes nor reads."""
        return to_bytes(self.model_dump())


def read_snapshot_json(raw: bytes) -> Snapshot:
    """What `Snapshot.to_json` wrote."""
    return Snapshot.model_validate(json.loads(raw))


class ProcessFacts(BaseModel):
    """A worker or supervisor process, as its last beat told."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str
    pid: int
    parent_pid: int
    host: str
    running: int = 0
    capacity: int = 0
    queue: str = ""
    missed_beats: int = 0
    """Heartbeats since its start that came later than twice their time, or not at all."""
    last_beat_ms: int = 0


def read_process(value: bytes) -> ProcessFacts:
    """What `process_beat` wrote: the time of the beat, a space, the facts."""
    at, _, facts = value.partition(b" ")
    return ProcessFacts.model_validate({**json.loads(facts), "last_beat_ms": int(at)})
