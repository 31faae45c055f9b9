"""What holds of every verdict, for every run and every moment."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runner.core.recovery.budgets import Budgets
from runner.core.recovery.evaluate import (
    Attempt,
    Deadlines,
    Forget,
    Incident,
    RunFacts,
    Seal,
    Wait,
    evaluate,
    lease_is_over,
)
from runner.core.run import ENDED, Reason, State

times = st.integers(0, 2_000_000)
limits = st.none() | st.integers(0, 400_000)
counts = st.integers(0, 20)
incidents = st.builds(Incident, attempt=counts, progress=counts, strikes=counts, lost_at_ms=times)
budgets = st.builds(Budgets, no_progress_ms=limits, attempts=st.none() | counts, lost_workers=st.none() | counts)
deadlines = st.builds(
    Deadlines, lease_ms=st.integers(500, 10_000), queue_check_ms=st.integers(100, 10_000), fresh_from_ms=times
)


def runs(*states: State) -> st.SearchStrategy[RunFacts]:
    return st.builds(
        RunFacts,
        state=st.sampled_from(states or tuple(State)),
        epoch=counts,
        progress=counts,
        progress_at_ms=times,
        lease_until_ms=times,
        step_at_ms=times,
        cancel_requested=st.booleans(),
        dispatch_pending=st.booleans(),
        lost_cause=st.sampled_from(["", "gone"]),
        incident=incidents,
        budgets=budgets,
    )


@given(runs(State.QUEUED), times, times, deadlines, deadlines)
def test_no_clock_judges_a_queued_run(run: RunFacts, now: int, later: int, some: Deadlines, others: Deadlines) -> None:
    """I21."""
    verdict = evaluate(run, now, some)
    assert verdict == evaluate(run, later, others)
    assert isinstance(verdict, Seal) is run.cancel_requested


@given(runs(), times, deadlines)
def test_an_ended_run_is_forgotten_and_no_other(run: RunFacts, now: int, limits: Deadlines) -> None:
    assert isinstance(evaluate(run, now, limits), Forget) is (run.state in ENDED)


@given(runs(State.RUNNING), times, deadlines)
def test_a_wait_ends_later_than_now_with_a_verdict(run: RunFacts, late: int, limits: Deadlines) -> None:
    """The look that it asks for is never in vain, and never later than the lease."""
    now = max(run.progress_at_ms, limits.fresh_from_ms) + late % limits.lease_ms
    verdict = evaluate(run, now, limits)
    if isinstance(verdict, Wait):
        assert now < verdict.until_ms <= max(run.lease_until_ms, limits.fresh_from_ms + limits.lease_ms)
        assert not isinstance(evaluate(run, verdict.until_ms, limits), Wait)


@given(runs(State.RUNNING), times, deadlines)
def test_nobody_is_judged_by_what_could_not_be_written_in_an_outage(
    run: RunFacts, silent: int, limits: Deadlines
) -> None:
    """I22: until a lease and a window after the outage, an owner not known to be gone is left alone."""
    now = limits.fresh_from_ms + min(silent, limits.lease_ms - 1)
    window = run.budgets.no_progress_ms
    if run.lost_cause == "" and (window is None or now - limits.fresh_from_ms <= window):
        assert isinstance(evaluate(run, now, limits), Wait)


@given(runs(State.RUNNING), times, deadlines)
def test_a_run_that_progresses_under_a_live_lease_is_left_alone(run: RunFacts, now: int, limits: Deadlines) -> None:
    """I9."""
    healthy = replace(run, progress_at_ms=now, lease_until_ms=now + 1)
    assert isinstance(evaluate(healthy, now, limits), Wait)


@given(runs(State.RUNNING), times, deadlines)
def test_a_bound_that_is_off_never_trips(run: RunFacts, now: int, limits: Deadlines) -> None:
    off = replace(run, budgets=Budgets(no_progress_ms=None, attempts=None, lost_workers=None))
    verdict = evaluate(off, now, limits)
    assert not isinstance(verdict, Seal) or verdict.ending.state is State.CANCELLED


@given(runs(State.RUNNING), times, deadlines)
def test_what_is_cancelled_is_never_tried_again(run: RunFacts, now: int, limits: Deadlines) -> None:
    """I19."""
    assert not isinstance(evaluate(replace(run, cancel_requested=True), now, limits), Attempt)


@given(runs(), times, deadlines)
def test_every_verdict_that_ends_a_run_names_its_reason_and_guards_itself(
    run: RunFacts, now: int, limits: Deadlines
) -> None:
    """I20; a verdict about a live lease holds only for the progress that was judged, any other only for a lost one."""
    verdict = evaluate(run, now, limits)
    if isinstance(verdict, Seal):
        assert verdict.ending.reason in set(Reason)
        lives = run.state is State.RUNNING and not lease_is_over(run, now, limits)
        about_silence = lives or verdict.ending.reason == Reason.NO_PROGRESS
        assert verdict.judged_progress == (run.progress if about_silence else None)


@given(runs(State.RUNNING), times, deadlines)
def test_an_attempt_stays_within_every_budget(run: RunFacts, now: int, limits: Deadlines) -> None:
    verdict = evaluate(run, now, limits)
    if isinstance(verdict, Attempt):
        held = run.budgets
        assert held.attempts is None or verdict.incident.attempt <= held.attempts
        assert held.lost_workers is None or verdict.incident.strikes < held.lost_workers
        assert held.no_progress_ms is None or verdict.silent_ms <= held.no_progress_ms


@given(runs(State.RUNNING), times, deadlines, st.integers(1, 100_000))
def test_more_progress_never_makes_a_verdict_harder(run: RunFacts, now: int, limits: Deadlines, more: int) -> None:
    ahead = replace(run, progress=run.progress + more, progress_at_ms=run.progress_at_ms + more)
    if not isinstance(evaluate(run, now, limits), Seal):
        assert not isinstance(evaluate(ahead, now, limits), Seal)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=30), deadlines)
def test_whatever_happens_a_run_that_never_progresses_is_given_up(
    losses: list[tuple[bool, int]], limits: Deadlines
) -> None:
    """No mix of losses without progress goes on for ever: attempts are counted at every one."""
    run = RunFacts(State.RUNNING, 1, 0, budgets=Budgets(no_progress_ms=None, attempts=3, lost_workers=None))
    tries = 1
    for known, wait in [*losses, *[(True, 0)] * 5]:
        now = limits.fresh_from_ms + limits.lease_ms + wait
        verdict = evaluate(replace(run, lost_cause="gone" if known else ""), now, limits)
        if isinstance(verdict, Seal):
            break
        assert isinstance(verdict, Attempt)
        run, tries = replace(run, incident=verdict.incident), tries + 1
    assert tries == 3
