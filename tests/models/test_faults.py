"""What a failure of a provider means: the rows that a server on loopback does not produce."""

from __future__ import annotations

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)

from runner.errors import ModelInterrupted, ModelRejected, ModelRetryable
from runner.models.faults import FAULTS, fault_of

BUSY = ModelRateLimitError("m", "busy", retry_after=1.5)
NEVER = ModelRequestRejectedError("m", "never")


@pytest.mark.parametrize(
    ("error", "rejected"),
    [
        (ModelHTTPError(408, "m"), False),
        (ModelHTTPError(418, "m"), True),
        (ModelHTTPError(502, "m"), False),
        (ModelAPIError("m", "junk"), False),
        (UnexpectedModelBehavior("nothing came"), False),
        (ContentFilterError("filtered"), True),
        (UserError("no key"), True),
        (TimeoutError(), False),
        (ConnectionResetError("reset"), False),
        (FallbackExceptionGroup("all failed", [NEVER, BUSY]), False),
        (FallbackExceptionGroup("all failed", [NEVER, NEVER]), True),
    ],
)
def test_what_may_pass_is_asked_again(error: BaseException, rejected: bool) -> None:
    assert isinstance(error, FAULTS)
    assert type(fault_of(error, began=False)) is (ModelRejected if rejected else ModelRetryable)
    assert type(fault_of(error, began=True)) is (ModelRejected if rejected else ModelInterrupted)
    assert str(fault_of(error, began=True))


@pytest.mark.parametrize(
    ("error", "wait_ms"),
    [
        (BUSY, 1500),
        (
            FallbackExceptionGroup(
                "all failed", [ModelAPIError("m", "x"), ModelRateLimitError("m", "x", retry_after=9), BUSY]
            ),
            1500,
        ),
        (FallbackExceptionGroup("all failed", [ModelAPIError("m", "x")]), None),
        (ModelRateLimitError("m", "x", retry_after=float("inf")), None),
        (ModelRateLimitError("m", "x", retry_after=-1), None),
    ],
)
def test_the_wish_of_the_provider_is_kept(error: BaseException, wait_ms: int | None) -> None:
    fault = fault_of(error, began=False)
    assert isinstance(fault, ModelRetryable)
    assert fault.retry_after_ms == wait_ms


def test_an_error_page_is_shortened() -> None:
    assert len(str(fault_of(ModelAPIError("m", "x" * 100_000), began=False))) == 2_000
