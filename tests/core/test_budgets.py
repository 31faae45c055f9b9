"""Which budgets are accepted, and what they mean: None is off, 0 is at once, nonsense is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from runner.core.recovery.budgets import Budgets, OffOr

LIMIT: TypeAdapter[int | None] = TypeAdapter(OffOr)


@pytest.mark.parametrize(
    ("given_value", "meant"),
    [
        (0, 0),
        (7, 7),
        (7.0, 7),
        ("7", 7),
        (" 7 ", 7),
        ("7.0", 7),
        ("0", 0),
        (None, None),
        (math.inf, None),
        ("none", None),
        (" None ", None),
        ("OFF", None),
        ("inf", None),
        ("+inf", None),
        ("Infinity", None),
        ("1e999", None),
    ],
)
def test_a_limit_is_a_whole_number_or_off(given_value: Any, meant: int | None) -> None:
    assert LIMIT.validate_python(given_value) == meant


@pytest.mark.parametrize(
    "nonsense",
    [math.nan, "nan", "NaN", -1, "-1", -0.5, -math.inf, "-inf", 1.5, "1.5", True, False, "", "true", "5s", [], {}],
)
def test_nonsense_is_refused(nonsense: Any) -> None:
    with pytest.raises(ValidationError):
        LIMIT.validate_python(nonsense)


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8))
def test_whatever_is_accepted_is_off_or_a_whole_number_from_zero(value: Any) -> None:
    try:
        limit = LIMIT.validate_python(value)
    except ValidationError:
        return
    assert limit is None or (type(limit) is int and limit >= 0)


@given(st.integers(min_value=0))
def test_whole_numbers_stay_what_they_are(value: int) -> None:
    assert LIMIT.validate_python(value) == value


def test_budgets_have_defaults_and_refuse_unknown_names() -> None:
    assert Budgets() == Budgets(no_progress_ms=300_000, attempts=10, lost_workers=5)
    with pytest.raises(ValidationError, match="no_progres_ms"):
        Budgets.model_validate({"no_progres_ms": 5})


def test_budgets_survive_json_with_off_as_null() -> None:
    budgets = Budgets(no_progress_ms=None, attempts=0, lost_workers=3)
    assert budgets.model_dump_json() == '{"no_progress_ms":null,"attempts":0,"lost_workers":3}'
    assert Budgets.model_validate_json(budgets.model_dump_json()) == budgets


def test_budgets_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Budgets().attempts = 3  # type: ignore[misc]
