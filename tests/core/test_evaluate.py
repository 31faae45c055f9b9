"""Verdicts about runs, one by one: the table of what a sweep decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.core.recovery.budgets import Budgets
from runner.core.recovery.evaluate import (
    LONGEST_QUEUE_LOOK_MS,
    STEADY_PROGRESS_MS,
    Attempt,
    Deadlines,
    Enqueue,
    Forget,
    Incident,
    LookInQueue,
    RunFacts,
    Seal,
    Verdict,
    Wait,
    after_loss,
    evaluate,
    next_queue_look,
)
from runner.core.run import ENDED, Ending, Reason, State

T0 = 1_000_000
LEASE = 5_000
WINDOW = 300_000
DEADLINES = Deadlines(lease_ms=LEASE, queue_check_ms=5_000)

QUEUED = RunFacts(State.QUEUED, epoch=0, progress=0)
RUNNING = RunFacts(State.RUNNING, epoch=1, progress=7, progress_at_ms=T0, lease_until_ms=T0 + LEASE)
OFF = Budgets(no_progress_ms=None, attempts=None, lost_workers=None)
CANCELLED = Seal(Ending(State.CANCELLED, Reason.CANCEL_REQUESTED))


def sealed(reason: Reason, progress: int = 7) -> Seal:
    judged = progress if reason is Reason.NO_PROGRESS else None
    return Seal(Ending(State.SEALED, reason), judged_progress=judged)


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_run_is_forgotten_whatever_its_record_says(state: State) -> None:
    assert evaluate(replace(RUNNING, state=state, cancel_requested=True), T0 + 10 * WINDOW, DEADLINES) == Forget()


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (QUEUED, LookInQueue()),
        (replace(QUEUED, dispatch_pending=True), Enqueue()),
        (replace(QUEUED, cancel_requested=True), CANCELLED),
        (replace(QUEUED, dispatch_pending=True, cancel_requested=True), CANCELLED),
        # What an attempt before left behind says nothing about a run that waits.
        (replace(QUEUED, lease_until_ms=1, progress_at_ms=1, incident=Incident(99, 0, 99, 1)), LookInQueue()),
    ],
)
def test_a_queued_run_is_enqueued_looked_for_or_cancelled(run: RunFacts, verdict: Verdict) -> None:
    assert evaluate(run, T0 + 100 * WINDOW, DEADLINES) == verdict


@pytest.mark.parametrize(
    ("lease_left", "silent", "verdict"),
    [
        (1, 0, Wait(T0 + 1)),
        (LEASE, 0, Wait(T0 + LEASE)),
        (LEASE, WINDOW - 1_000, Wait(T0 + 1_001)),
        (LEASE, WINDOW, Wait(T0 + 1)),  # not yet: silence must exceed the window
        (LEASE, WINDOW + 1, sealed(Reason.NO_PROGRESS)),
        (0, 0, Attempt(Incident(1, 7, 1, T0), "lease expired", 0)),  # a lease ends at its time
        (0, WINDOW, Attempt(Incident(1, 7, 1, T0), "lease expired", WINDOW)),
        (0, WINDOW + 1, sealed(Reason.NO_PROGRESS)),
    ],
)
def test_a_running_run_is_judged_by_its_lease_and_its_silence(lease_left: int, silent: int, verdict: Verdict) -> None:
    run = replace(RUNNING, lease_until_ms=T0 + lease_left, progress_at_ms=T0 - silent)
    assert evaluate(run, T0, DEADLINES) == verdict


def test_a_cancel_is_left_to_a_live_owner_and_ends_a_lost_run() -> None:
    """The owner hears of it at its next write; without an owner no further attempt is made."""
    run = replace(RUNNING, cancel_requested=True)
    assert evaluate(run, T0, DEADLINES) == Wait(T0 + LEASE)
    assert evaluate(run, T0 + LEASE, DEADLINES) == CANCELLED


def test_a_cancel_of_a_lost_run_wins_over_every_budget() -> None:
    run = replace(RUNNING, cancel_requested=True, budgets=Budgets(no_progress_ms=0, attempts=0, lost_workers=0))
    assert evaluate(run, T0 + LEASE, DEADLINES) == CANCELLED


def test_a_known_cause_is_told_and_needs_no_guess() -> None:
    run = replace(RUNNING, lost_cause="killed by signal 9", lease_until_ms=T0)
    assert evaluate(run, T0, DEADLINES) == Attempt(Incident(1, 7, 1, T0), "killed by signal 9", 0)


# Each bound: how it trips, how strict it is, off and at once


@pytest.mark.parametrize(
    ("limit", "strikes_before", "trips"),
    [(3, 1, False), (3, 2, True), (3, 9, True), (1, 0, True), (0, 0, True), (None, 10_000, False)],
)
def test_the_nth_lost_worker_is_one_too_many(limit: int | None, strikes_before: int, trips: bool) -> None:
    """BP-06: with a cap of 3, three executions start."""
    budgets = Budgets(lost_workers=limit, attempts=None)
    run = replace(RUNNING, budgets=budgets, incident=Incident(1, 0, strikes_before, 0))
    verdict = evaluate(run, T0 + LEASE, DEADLINES)
    assert (verdict == sealed(Reason.LOST_WORKERS)) is trips
    assert isinstance(verdict, Attempt) is not trips


def test_exactly_as_many_executions_start_as_the_cap_of_lost_workers_says() -> None:
    """BP-06, from the first execution on: each is lost at the same point, without a step."""
    run, starts = replace(RUNNING, budgets=Budgets(lost_workers=3), progress=0), 1
    for loss in range(1, 10):
        run = replace(run, progress=loss)  # a little output before each loss
        verdict = evaluate(run, T0 + LEASE, DEADLINES)
        if isinstance(verdict, Seal):
            assert verdict == sealed(Reason.LOST_WORKERS, progress=loss)
            break
        assert isinstance(verdict, Attempt)
        run, starts = replace(run, incident=verdict.incident), starts + 1
    assert starts == 3


@pytest.mark.parametrize(
    ("limit", "attempt_before", "trips"),
    [(3, 2, False), (3, 3, True), (1, 0, False), (1, 1, True), (0, 0, True), (None, 10_000, False)],
)
def test_attempts_without_progress_may_reach_their_limit(limit: int | None, attempt_before: int, trips: bool) -> None:
    budgets = Budgets(attempts=limit, lost_workers=None)
    run = replace(RUNNING, budgets=budgets, incident=Incident(attempt_before, RUNNING.progress, 0, 0))
    verdict = evaluate(run, T0 + LEASE, DEADLINES)
    assert (verdict == sealed(Reason.ATTEMPTS)) is trips
    assert isinstance(verdict, Attempt) is not trips


@pytest.mark.parametrize(("limit", "silent", "trips"), [(0, 0, False), (0, 1, True), (None, 10**12, False)])
def test_a_window_of_nothing_allows_no_silence_and_none_allows_all(limit: int | None, silent: int, trips: bool) -> None:
    run = replace(RUNNING, budgets=Budgets(no_progress_ms=limit), progress_at_ms=T0 - silent)
    expected = sealed(Reason.NO_PROGRESS)
    assert (evaluate(run, T0, DEADLINES) == expected) is trips
    assert (evaluate(run, T0 + LEASE, DEADLINES) == expected) is (trips or limit == 0)


def test_when_several_bounds_trip_the_first_names_the_reason() -> None:
    all_over = replace(RUNNING, incident=Incident(99, 7, 99, 0), progress_at_ms=T0 - 10 * WINDOW)
    at = T0 + LEASE
    assert evaluate(all_over, at, DEADLINES) == sealed(Reason.LOST_WORKERS)
    two = replace(all_over, budgets=Budgets(lost_workers=None))
    assert evaluate(two, at, DEADLINES) == sealed(Reason.NO_PROGRESS)
    one = replace(all_over, budgets=Budgets(lost_workers=None, no_progress_ms=None))
    assert evaluate(one, at, DEADLINES) == sealed(Reason.ATTEMPTS)
    none = replace(all_over, budgets=OFF)
    assert isinstance(evaluate(none, at, DEADLINES), Attempt)


# What an incident remembers


def next_incident(run: RunFacts, *, strike: bool = True) -> Incident:
    verdict = after_loss(replace(run, budgets=OFF), T0 + LEASE, DEADLINES, strike=strike)
    assert isinstance(verdict, Attempt)
    return verdict.incident


def test_progress_since_the_last_attempt_begins_the_count_of_attempts_anew() -> None:
    """BP-04, BP-05."""
    before = Incident(attempt=5, progress=6, strikes=0, lost_at_ms=0)
    assert next_incident(replace(RUNNING, incident=before)).attempt == 1
    assert next_incident(replace(RUNNING, incident=replace(before, progress=7))).attempt == 6
    assert next_incident(replace(RUNNING, incident=before)).progress == 7


LOST_AT = T0 - 100_000


@pytest.mark.parametrize(
    ("step_at", "progress_at", "strikes"),
    [
        (0, LOST_AT + 10, 3),  # a little output before each loss clears nothing
        (LOST_AT, LOST_AT + 10, 3),  # the step was finished before the loss
        (LOST_AT + 1, LOST_AT + 10, 1),
        (0, LOST_AT + STEADY_PROGRESS_MS - 1, 3),
        (0, LOST_AT + STEADY_PROGRESS_MS, 1),
    ],
)
def test_strikes_are_cleared_by_a_finished_step_or_a_minute_of_progress(
    step_at: int, progress_at: int, strikes: int
) -> None:
    run = replace(RUNNING, incident=Incident(1, 0, 2, LOST_AT), step_at_ms=step_at, progress_at_ms=progress_at)
    assert next_incident(run) == Incident(1, 7, strikes, T0 + LEASE)


def test_a_step_before_the_first_loss_clears_nothing_that_is_not_there() -> None:
    run = replace(RUNNING, step_at_ms=T0)
    assert next_incident(run).strikes == 1


def test_a_provider_that_failed_costs_an_attempt_and_no_strike() -> None:
    before = Incident(attempt=1, progress=7, strikes=2, lost_at_ms=LOST_AT)
    run = replace(RUNNING, incident=before, progress_at_ms=LOST_AT + 1)
    assert next_incident(run, strike=False) == Incident(2, 7, 2, LOST_AT)
    cleared = replace(run, step_at_ms=LOST_AT + 5)
    assert next_incident(cleared, strike=False) == Incident(2, 7, 0, 0)


def test_no_worker_was_lost_where_a_provider_failed_even_if_none_may_be() -> None:
    run = replace(RUNNING, budgets=Budgets(lost_workers=0))
    assert isinstance(after_loss(run, T0, DEADLINES, strike=False), Attempt)
    assert after_loss(run, T0, DEADLINES) == sealed(Reason.LOST_WORKERS)


# After an outage of the server (I22)


def test_a_lease_that_could_not_be_renewed_is_judged_a_lease_after_the_outage() -> None:
    back = T0 + 60_000
    fresh = replace(DEADLINES, fresh_from_ms=back)
    assert evaluate(RUNNING, back, fresh) == Wait(back + LEASE)
    assert evaluate(RUNNING, back + LEASE - 1, fresh) == Wait(back + LEASE)
    assert isinstance(evaluate(RUNNING, back + LEASE, fresh), Attempt)


def test_an_owner_that_is_known_to_be_gone_is_not_waited_for() -> None:
    fresh = replace(DEADLINES, fresh_from_ms=T0)
    assert isinstance(evaluate(replace(RUNNING, lost_cause="gone", lease_until_ms=T0), T0, fresh), Attempt)


def test_silence_counts_from_the_end_of_an_outage() -> None:
    back = T0 + 10 * WINDOW
    fresh = replace(DEADLINES, fresh_from_ms=back)
    run = replace(RUNNING, lease_until_ms=back + 2 * WINDOW)
    assert evaluate(run, back + WINDOW, fresh) == Wait(back + WINDOW + 1)
    assert evaluate(run, back + WINDOW + 1, fresh) == sealed(Reason.NO_PROGRESS)


def test_an_attempt_after_an_outage_carries_only_the_silence_since() -> None:
    back = T0 + 10 * WINDOW
    verdict = evaluate(RUNNING, back + LEASE, replace(DEADLINES, fresh_from_ms=back))
    assert isinstance(verdict, Attempt)
    assert verdict.silent_ms == LEASE


@pytest.mark.parametrize(
    ("waited", "until"),
    [(0, 5_000), (4_000, 5_000), (20_000, 20_000), (10**9, LONGEST_QUEUE_LOOK_MS), (-5, 5_000)],
)
def test_a_job_is_looked_for_more_rarely_the_longer_it_waits(waited: int, until: int) -> None:
    assert next_queue_look(T0 - waited, T0, DEADLINES) == T0 + until
