"""How much of each failure a run may take before it is given up.

Rules of this file: every budget is named by the failure it catches; units last; None is off, 0 is at once; infinity is
accepted as off; NaN and nonsense are refused, because a limit that is silently off is no limit.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_OFF = {"none", "off", "inf", "infinity", "+inf"}


def off_or_number(value: Any) -> Any:
    """Reads `none`, `off`, infinity and None as off; refuses NaN and booleans; leaves the rest to the type."""
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers; use none for off")  # noqa: TRY004 - pydantic asks for it
    if isinstance(value, str):
        if value.strip().lower() in _OFF:
            return None
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("NaN is no limit; use none for off")
        if value == math.inf:
            return None
        if value.is_integer():
            return int(value)
    return value


OffOr = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(off_or_number)]
"""A limit that can be off: a whole number from 0, or None."""


class Budgets(BaseModel):
    """The budgets of one run. Set globally, and per run on submit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    no_progress_ms: OffOr = 300_000
    """Silence: no new content for this long since the last progress. Waiting in a queue does not count."""
    attempts: OffOr = 10
    """Attempts in a row that brought no progress at all."""
    lost_workers: OffOr = 5
    """Workers lost under the run; cleared by a finished step, or by 60 s of progress past the loss."""
