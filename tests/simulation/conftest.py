"""Quiet logs: a simulation lives through thousands of losses, and each one is logged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from runner.telemetry import set_up_logging


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs() -> Iterator[None]:
    set_up_logging("CRITICAL")
    yield
    structlog.reset_defaults()
