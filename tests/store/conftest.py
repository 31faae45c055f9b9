"""The stores of these tests: fakeredis, and one real server for each test process, emptied before every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.proxy import Proxy
from tests.support.server import TestServer, fresh_server
from tests.support.store import KINDS, Store, fake_store, real_store


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    """The one real server of this test process."""
    with fresh_server() as started:
        yield started


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store on the manual clock, of each kind."""
    if request.param == "fake":
        with fake_store() as empty:
            yield empty
    else:
        with real_store(request.getfixturevalue("server").url) as empty:
            yield empty


@pytest.fixture
def real(server: TestServer) -> Iterator[Store]:
    """An empty store on the real server only."""
    with real_store(server.url) as empty:
        yield empty


@pytest.fixture
def proxy(server: TestServer) -> Iterator[Proxy]:
    """A proxy in front of the real server."""
    with Proxy(server.url) as standing:
        yield standing
