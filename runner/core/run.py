"""The life of a run, on one page.

Rules of this file: states live in the table; what is not in it does not exist. A terminal state is left by nothing.

    queued --claim--> running --complete--> completed
      ^                 |  |----fail------> failed      (the agent raised)
      |--requeue--------|  |----seal------> sealed      (given up for a typed reason)
      |                 |-------cancel----> cancelled
      |--cancel--> cancelled
      |--seal----> sealed
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a run is."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SEALED = "sealed"


class Act(StrEnum):
    """What moves a run."""

    CLAIM = "claim"
    REQUEUE = "requeue"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    SEAL = "seal"


TRANSITIONS: dict[tuple[State, Act], State] = {
    (State.QUEUED, Act.CLAIM): State.RUNNING,
    (State.QUEUED, Act.CANCEL): State.CANCELLED,
    (State.QUEUED, Act.SEAL): State.SEALED,
    (State.RUNNING, Act.REQUEUE): State.QUEUED,
    (State.RUNNING, Act.COMPLETE): State.COMPLETED,
    (State.RUNNING, Act.FAIL): State.FAILED,
    (State.RUNNING, Act.CANCEL): State.CANCELLED,
    (State.RUNNING, Act.SEAL): State.SEALED,
}

ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.SEALED})


class Reason(StrEnum):
    """Why a run ended. Every path that ends names one; readers treat the set as open."""

    FINISHED = "finished"
    CANCEL_REQUESTED = "cancel_requested"
    AGENT_ERROR = "agent_error"
    UNKNOWN_AGENT = "unknown_agent"
    MODEL_REJECTED = "model_rejected"
    LOST_WORKERS = "interrupted_attempts_exceeded"
    NO_PROGRESS = "no_progress_timeout"
    ATTEMPTS = "max_attempts_exceeded"


@dataclass(frozen=True, slots=True)
class Ending:
    """A run's end as decided, before it is written."""

    state: State
    reason: str
    error: str = ""

    def __post_init__(self) -> None:
        assert self.state in ENDED, self.state
        assert self.reason, "no run ends without a reason"
