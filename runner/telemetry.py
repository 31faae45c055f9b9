"""Log events: structured, with stable names and run ids.

Rules of this file: an event is named `<area>.<what happened>`; ids and numbers are fields; secrets and message contents
never appear at info level or above.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, cast

import structlog

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger


def log(area: str) -> BoundLogger:
    """The logger of one area of the house."""
    return cast("BoundLogger", structlog.get_logger(area=area))


def set_up_logging(level: str = "INFO", *, as_json: bool | None = None) -> None:
    """Sends events to standard error: JSON lines where nobody watches, coloured lines on a terminal."""
    as_json = not sys.stderr.isatty() if as_json is None else as_json
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
