"""What to do about a run that is due: wait, look for its job, enqueue it, try again, or give it up.

Rules of this file: pure; time is an argument, in ms of the server's clock. Comparisons are strict as named in the
budgets. When several bounds trip together the first in the order of `_exceeded` names the reason. A run whose
cancel was requested is never tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from runner.core.recovery.budgets import Budgets
from runner.core.run import ENDED, Ending, Reason, State

STEADY_PROGRESS_MS = 60_000
"""Progress for this long past a loss shows that the loss was not the turn's doing."""

LONGEST_QUEUE_LOOK_MS = 60_000
"""However long a run waits in its queue, its job is looked for this often."""

CANCELLED = Ending(State.CANCELLED, Reason.CANCEL_REQUESTED)


@dataclass(frozen=True, slots=True)
class Incident:
    """What recovery remembers between attempts. `attempt` counts attempts in a row without progress."""

    attempt: int = 1
    progress: int = 0
    strikes: int = 0
    lost_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a verdict depends on, as read from the record."""

    state: State
    epoch: int
    progress: int
    progress_at_ms: int = 0
    lease_until_ms: int = 0
    step_at_ms: int = 0
    cancel_requested: bool = False
    dispatch_pending: bool = False
    lost_cause: str = ""
    incident: Incident = Incident()
    budgets: Budgets = field(default_factory=Budgets)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The clockwork of this deployment, and the moment from which deadlines count after an outage."""

    lease_ms: int
    queue_check_ms: int
    fresh_from_ms: int = 0


@dataclass(frozen=True, slots=True)
class Forget:
    """The run has ended: the index need not hold it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Healthy: look again at this time."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Recorded but never enqueued: enqueue it now."""


@dataclass(frozen=True, slots=True)
class LookInQueue:
    """Enqueued a while ago and not claimed: enqueue it again if RQ no longer holds its job."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The owner is lost: take the run back and enqueue it at the head."""

    incident: Incident
    cause: str
    silent_ms: int


@dataclass(frozen=True, slots=True)
class Seal:
    """Give the run up (or end it as cancelled). `judged_progress` guards a verdict about silence."""

    ending: Ending
    judged_progress: int | None = None


Verdict = Forget | Wait | Enqueue | LookInQueue | Attempt | Seal


def evaluate(run: RunFacts, now_ms: int, deadlines: Deadlines) -> Verdict:
    """The verdict about one due run."""
    if run.state in ENDED:
        return Forget()
    if run.state is State.QUEUED:
        return _about_queued(run)
    if not lease_is_over(run, now_ms, deadlines):
        return _about_silence(run, now_ms, deadlines)
    return after_loss(run, now_ms, deadlines)


def next_queue_look(queued_at_ms: int, now_ms: int, deadlines: Deadlines) -> int:
    """When to look for a queued run's job again: rarer the longer it waits, so that a long queue stays cheap."""
    waited_ms = max(0, now_ms - queued_at_ms)
    return now_ms + max(deadlines.queue_check_ms, min(waited_ms, LONGEST_QUEUE_LOOK_MS))


def lease_is_over(run: RunFacts, now_ms: int, deadlines: Deadlines) -> bool:
    """A lease that could not be renewed during an outage is judged only a full lease after its end."""
    if run.lost_cause:
        return run.lease_until_ms <= now_ms
    return max(run.lease_until_ms, deadlines.fresh_from_ms + deadlines.lease_ms) <= now_ms


def after_loss(run: RunFacts, now_ms: int, deadlines: Deadlines, *, strike: bool = True) -> Attempt | Seal:
    """The verdict once the owner is known to be gone, or (without a strike) gave up on its provider."""
    if run.cancel_requested:
        return Seal(CANCELLED)
    silent_ms = silence(run, now_ms, deadlines)
    incident = _next_incident(run, now_ms, strike=strike)
    reason = _exceeded(run, incident, silent_ms)
    if reason is not None:
        judged = run.progress if reason is Reason.NO_PROGRESS else None
        return Seal(Ending(State.SEALED, reason), judged_progress=judged)
    return Attempt(incident, run.lost_cause or "lease expired", silent_ms)


def silence(run: RunFacts, now_ms: int, deadlines: Deadlines) -> int:
    """Milliseconds without new content while the run was running, an outage not counted."""
    return max(0, now_ms - max(run.progress_at_ms, deadlines.fresh_from_ms))


def _about_queued(run: RunFacts) -> Verdict:
    if run.cancel_requested:
        return Seal(CANCELLED)
    return Enqueue() if run.dispatch_pending else LookInQueue()


def _about_silence(run: RunFacts, now_ms: int, deadlines: Deadlines) -> Verdict:
    window = run.budgets.no_progress_ms
    lease_until = max(run.lease_until_ms, deadlines.fresh_from_ms + deadlines.lease_ms)
    if window is None:
        return Wait(lease_until)
    silent_ms = silence(run, now_ms, deadlines)
    if silent_ms > window:
        ending = CANCELLED if run.cancel_requested else Ending(State.SEALED, Reason.NO_PROGRESS)
        return Seal(ending, judged_progress=run.progress)
    return Wait(min(lease_until, now_ms + window - silent_ms + 1))


def _next_incident(run: RunFacts, now_ms: int, *, strike: bool) -> Incident:
    before = run.incident
    advanced = run.progress > before.progress
    survived = before.lost_at_ms and (
        run.step_at_ms > before.lost_at_ms or run.progress_at_ms - before.lost_at_ms >= STEADY_PROGRESS_MS
    )
    strikes = 0 if survived else before.strikes
    incident = Incident(
        attempt=1 if advanced else before.attempt + 1,
        progress=run.progress,
        strikes=strikes,
        lost_at_ms=0 if survived else before.lost_at_ms,
    )
    return replace(incident, strikes=strikes + 1, lost_at_ms=now_ms) if strike else incident


def _exceeded(run: RunFacts, incident: Incident, silent_ms: int) -> Reason | None:
    budgets = run.budgets
    bounds = (
        (
            Reason.LOST_WORKERS,
            budgets.lost_workers,
            incident.strikes >= (budgets.lost_workers or 1),  # 0 is at the first loss: without one nothing is over
        ),
        (
            Reason.NO_PROGRESS,
            budgets.no_progress_ms,
            silent_ms > (budgets.no_progress_ms or 0),
        ),
        (Reason.ATTEMPTS, budgets.attempts, incident.attempt > (budgets.attempts or 0)),
    )
    return next((reason for reason, limit, over in bounds if limit is not None and over), None)
