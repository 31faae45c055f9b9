"""Every limit and address of the runner: name, default, unit.

Rules of this file: units last (`_ms`, `_bytes`); `None` (in the environment: `none`) is off, `0` is at once, infinity
is accepted as off; NaN, negative and nonsense values are refused when the process starts. Each field is set by the
environment variable RUNNER_<NAME>; budgets by RUNNER_BUDGET_<NAME>.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from runner.core.recovery.budgets import Budgets, OffOr
from runner.errors import InvalidInput


def checked_budgets(values: dict[str, Any]) -> Budgets:
    """Budgets from untrusted values (a submit, a command line); InvalidInput says which value is wrong and why."""
    try:
        return Budgets.model_validate(values)
    except ValidationError as error:
        raise InvalidInput(f"budget refused: {readable(error)}; use a whole number from 0, or none for off") from None


def readable(error: ValidationError) -> str:
    """The facts of a pydantic refusal on one line, without the input values of others."""
    return "; ".join(f"{'.'.join(str(p) for p in e['loc']) or 'value'}: {e['msg']}" for e in error.errors())


class Settings(BaseSettings):
    """The configuration of one process, read once at its start. Build it by `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix="RUNNER_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
    )

    redis_url: str | None = None
    """Where the runs are stored. Unset: an embedded server in `data_dir`."""
    broker_url: str | None = None
    """Where RQ's queues are. Unset: the same server as the runs."""
    data_dir: Path = Path(".runner")
    """Home of the embedded server's data."""
    redis_bin: str | None = None
    """A server binary to embed instead of the packaged one."""
    key_prefix: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,32}$")] = "tr"
    """First part of every key."""
    queue: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "turns"
    """Name of the one RQ queue that a worker process serves."""
    agents: str = "jobs.registry:agents"
    """`module:attribute` of the agents that workers run."""
    allow_eviction: bool = False
    """Accept a server whose maxmemory-policy may drop runs."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Turns that one worker process runs at a time."""
    lease_ms: Annotated[int, Field(ge=500, le=600_000)] = 5_000
    """How long a turn is owned after a heartbeat; a lost host is noticed this late."""
    beat_ms: Annotated[int, Field(ge=50, le=60_000)] = 1_000
    """How often a worker process renews the leases of all its turns, in one call."""
    loop_lag_limit_ms: Annotated[int, Field(ge=100)] = 5_000
    """A worker whose event loop is stuck for longer stops its heartbeats, so that it is seen as lost."""
    handover_grace_ms: Annotated[int, Field(ge=0, le=60_000)] = 200
    """How long a turn may take to reach its next boundary when its process is told to stop."""

    sweep_ms: Annotated[int, Field(ge=20, le=60_000)] = 200
    """How often the supervisor takes what is due."""
    sweep_batch: Annotated[int, Field(ge=1, le=10_000)] = 200
    """How many due runs of one partition a sweep takes at most."""
    dispatch_grace_ms: Annotated[int, Field(ge=0)] = 2_000
    """How old a run must be that was recorded but never enqueued, before the supervisor enqueues it."""
    queue_check_ms: Annotated[int, Field(ge=100)] = 5_000
    """How often a queued run is looked for in its RQ queue."""
    retention_ms: Annotated[int, Field(ge=1_000)] = 86_400_000
    """How long the keys of an ended run are kept."""
    idempotency_ms: Annotated[int, Field(ge=1_000)] = 86_400_000
    """How long an idempotency key names its run."""

    batch_chunks: Annotated[int, Field(ge=1, le=1_024)] = 64
    """Chunks in one append at most."""
    batch_bytes: Annotated[int, Field(ge=1_024)] = 262_144
    """Bytes of chunks in one append at most; a single larger chunk goes alone."""
    buffer_bytes: Annotated[int, Field(ge=1_024)] = 1_048_576
    """Bytes that a turn may have written but not yet acknowledged; more waits."""
    append_window_ms: Annotated[int, Field(ge=0, le=1_000)] = 0
    """How long a busy worker collects before it sends. 0 sends at once when nothing is in flight."""
    chunk_bytes: Annotated[int, Field(ge=256)] = 1_048_576
    """Bytes of one chunk at most."""
    input_bytes: Annotated[int, Field(ge=256)] = 1_048_576
    """Bytes of a run's input at most."""
    memo_bytes: Annotated[int, Field(ge=256)] = 1_048_576
    """Bytes of a memoised step result or stash at most."""

    command_timeout_ms: Annotated[int, Field(ge=100)] = 5_000
    """How long one command may take before its connection is given up."""
    command_retries: Annotated[int, Field(ge=0, le=100)] = 8
    """How often a command that is safe to repeat is repeated after a lost connection."""
    tail_block_ms: Annotated[int, Field(ge=10, le=60_000)] = 5_000
    """How long a silent tail waits before it checks the durable state of its run."""
    tail_buffer_entries: Annotated[int, Field(ge=1)] = 256
    """Entries kept for a slow reader; past that it re-reads from its cursor."""

    budget_no_progress_ms: OffOr = 300_000
    budget_attempts: OffOr = 10
    budget_lost_workers: OffOr = 5

    @property
    def budgets(self) -> Budgets:
        """The budgets of runs that name none of their own."""
        return Budgets(
            no_progress_ms=self.budget_no_progress_ms,
            attempts=self.budget_attempts,
            lost_workers=self.budget_lost_workers,
        )


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment and `overrides`. InvalidInput names the variable that is wrong."""
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        raise InvalidInput(f"configuration refused (RUNNER_*): {readable(error)}") from None
    if settings.beat_ms * 2 > settings.lease_ms:
        raise InvalidInput(
            f"RUNNER_BEAT_MS={settings.beat_ms} must be at most half of RUNNER_LEASE_MS={settings.lease_ms}, "
            "or one late heartbeat loses a healthy turn"
        )
    return settings
