"""What a failure of a provider call means for the run, as the runner's own errors.

Rules of this file: the one place that knows the exception classes of pydantic-ai. "Retry" means that the same request
may work later; everything that asking again cannot change is a rejection. A failure after the answer began is an
interruption: what came stays.
"""

from __future__ import annotations

import math

from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)

from runner.errors import ModelError, ModelInterrupted, ModelRejected, ModelRetryable

FAULTS = (
    ModelAPIError,
    UnexpectedModelBehavior,
    UserError,
    FallbackExceptionGroup,
    TimeoutError,
    ConnectionError,
)
"""The exceptions that are failures of a provider; any other one is a bug and is left alone."""

_REJECTING = (ModelQuotaExceededError, ModelRequestRejectedError, ContentFilterError, UserError)
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_TEXT_LIMIT = 2_000


def fault_of(error: BaseException, *, began: bool) -> ModelError:
    """The runner's error for one of `FAULTS`. `began` says that chunks of this answer were already given out."""
    text = _text(error)
    if _rejects(error):
        return ModelRejected(text)
    wait_ms = _retry_after_ms(error)
    return ModelInterrupted(text, wait_ms) if began else ModelRetryable(text, wait_ms)


def _rejects(error: BaseException) -> bool:
    match error:
        case FallbackExceptionGroup():
            return all(_rejects(each) for each in error.exceptions)
        case _ if isinstance(error, _REJECTING):
            return True
        case ModelHTTPError(status_code=status):
            return 400 <= status < 500 and status not in _PASSING_STATUS
        case _:
            return False


def _retry_after_ms(error: BaseException) -> int | None:
    match error:
        case FallbackExceptionGroup():
            waits = [wait for each in error.exceptions if (wait := _retry_after_ms(each)) is not None]
            return min(waits, default=None)
        case ModelAPIError(retry_after=float() | int() as seconds) if math.isfinite(seconds) and seconds >= 0:
            return math.ceil(seconds * 1000)
        case _:
            return None


def _text(error: BaseException) -> str:
    """The provider's words, shortened: an error page must not fill the stream of the run."""
    if isinstance(error, TimeoutError):
        return str(error) or "the provider sent nothing within the time limit"
    return f"{type(error).__name__}: {error}"[:_TEXT_LIMIT]
