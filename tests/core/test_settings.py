"""Settings from the environment: what is accepted, and that nonsense is refused when a process starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from runner.core.recovery.budgets import Budgets
from runner.errors import InvalidInput
from runner.settings import checked_budgets, load_settings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("RUNNER_"):
            monkeypatch.delenv(name)


def test_without_anything_everything_has_a_default() -> None:
    settings = load_settings()
    assert (settings.redis_url, settings.data_dir, settings.queue) == (None, Path(".runner"), "turns")
    assert settings.budgets == Budgets()


def test_the_environment_sets_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_REDIS_URL", "redis://h:1/2")
    monkeypatch.setenv("RUNNER_LEASE_MS", "9000")
    monkeypatch.setenv("RUNNER_BUDGET_ATTEMPTS", "0")
    monkeypatch.setenv("RUNNER_BUDGET_NO_PROGRESS_MS", "none")
    monkeypatch.setenv("RUNNER_BUDGET_LOST_WORKERS", "inf")
    monkeypatch.setenv("RUNNER_QUEUE", "")
    settings = load_settings()
    assert (settings.redis_url, settings.lease_ms) == ("redis://h:1/2", 9_000)
    assert settings.budgets == Budgets(attempts=0, no_progress_ms=None, lost_workers=None)
    assert settings.queue == "turns", "an empty variable is an unset one"


def test_what_the_caller_says_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_LEASE_MS", "9000")
    assert load_settings(lease_ms=8_000).lease_ms == 8_000


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RUNNER_LEASE_MS", "nan"),
        ("RUNNER_LEASE_MS", "inf"),
        ("RUNNER_LEASE_MS", "499"),
        ("RUNNER_LEASE_MS", "none"),
        ("RUNNER_BEAT_MS", "-1"),
        ("RUNNER_CONCURRENCY", "0"),
        ("RUNNER_CONCURRENCY", "1.5"),
        ("RUNNER_BUDGET_ATTEMPTS", "nan"),
        ("RUNNER_BUDGET_NO_PROGRESS_MS", "-1"),
        ("RUNNER_BUDGET_LOST_WORKERS", "true"),
        ("RUNNER_KEY_PREFIX", "a{b"),
        ("RUNNER_KEY_PREFIX", "a:b"),
        ("RUNNER_QUEUE", "two words"),
        ("RUNNER_ALLOW_EVICTION", "perhaps"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput, match=variable.removeprefix("RUNNER_").lower()):
        load_settings()


def test_a_refusal_does_not_tell_the_values_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_REDIS_URL", "redis://:s3cret@h")
    monkeypatch.setenv("RUNNER_LEASE_MS", "x")
    with pytest.raises(InvalidInput) as refusal:
        load_settings()
    assert "s3cret" not in str(refusal.value)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leese_ms"):
        load_settings(leese_ms=5_000)


def test_one_late_heartbeat_may_not_lose_a_turn() -> None:
    assert load_settings(beat_ms=500, lease_ms=1_000).beat_ms == 500
    with pytest.raises(InvalidInput, match="at most half"):
        load_settings(beat_ms=501, lease_ms=1_000)


def test_settings_do_not_change() -> None:
    settings = load_settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.lease_ms = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    "values",
    [{"attempts": -1}, {"attempts": float("nan")}, {"attempts": True}, {"atempts": 1}, {"no_progress_ms": "x"}],
)
def test_budgets_of_a_submission_are_refused_with_the_way_out(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="budget refused") as refusal:
        checked_budgets(values)
    assert next(iter(values)) in str(refusal.value)
    assert "none for off" in str(refusal.value)


def test_budgets_of_a_submission_may_be_off() -> None:
    assert checked_budgets({"attempts": None, "lost_workers": "off"}) == Budgets(attempts=None, lost_workers=None)
