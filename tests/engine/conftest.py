"""What these tests share: quiet logs (what they provoke is logged a thousand times), and one real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from runner.telemetry import set_up_logging
from tests.support.server import TestServer, fresh_server
from tests.support.store import Store, real_store


@pytest.fixture(autouse=True, scope="session")
def _quiet_logs() -> Iterator[None]:
    set_up_logging("CRITICAL")
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    """The one real server of this test process."""
    with fresh_server() as started:
        yield started


@pytest.fixture
def store(server: TestServer) -> Iterator[Store]:
    """An empty store on it."""
    with real_store(server.url) as empty:
        yield empty
