"""The life of a run, as its table tells it."""

from __future__ import annotations

import pytest

from runner.core.run import ENDED, TRANSITIONS, Act, Ending, Reason, State


def test_the_table_speaks_of_every_state_and_every_act() -> None:
    assert {act for _, act in TRANSITIONS} == set(Act)
    assert {state for state, _ in TRANSITIONS} | set(TRANSITIONS.values()) == set(State)


def test_nothing_leaves_an_end_and_everything_else_has_a_way_to_one() -> None:
    """I1."""
    assert set(State) - {State.QUEUED, State.RUNNING} == ENDED
    assert {state for state, _ in TRANSITIONS} == set(State) - ENDED
    assert {end for (_, act), end in TRANSITIONS.items() if act not in (Act.CLAIM, Act.REQUEUE)} == ENDED


def test_every_live_state_can_be_cancelled_and_given_up() -> None:
    """I19, I20."""
    for state in set(State) - ENDED:
        assert TRANSITIONS[state, Act.CANCEL] is State.CANCELLED
        assert TRANSITIONS[state, Act.SEAL] is State.SEALED


def test_only_a_claim_makes_a_run_run() -> None:
    assert [key for key, end in TRANSITIONS.items() if end is State.RUNNING] == [(State.QUEUED, Act.CLAIM)]


def test_an_ending_is_an_end_with_a_reason() -> None:
    assert Ending(State.SEALED, Reason.ATTEMPTS).error == ""
    with pytest.raises(AssertionError):
        Ending(State.RUNNING, Reason.FINISHED)
    with pytest.raises(AssertionError, match="without a reason"):
        Ending(State.FAILED, "")


def test_reasons_are_told_as_their_values() -> None:
    assert len({reason.value for reason in Reason}) == len(Reason)
    assert f"{Reason.NO_PROGRESS}" == "no_progress_timeout"
