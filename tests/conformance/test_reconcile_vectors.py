"""Recorded behaviour of another implementation: matching a client's history with the stored one."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.transcript.reconcile import claimed_rows, merge_orphan, reconcile_messages, sanitized
from tests.conformance.test_repair_vectors import vectors

DIFFERENCES: dict[str, str] = {}


def with_adopted_id(message: dict[str, Any], stored: list[dict[str, Any]]) -> dict[str, Any]:
    row = claimed_rows([message], stored).get(0)
    return message if row is None else {**message, "id": stored[row]["id"]}


@pytest.mark.parametrize("vector", vectors("reconcile"))
def test_reconcile(vector: dict[str, Any]) -> None:
    match vector["input"]:
        case {"incoming": list(incoming), "server": server, **rest}:
            result: Any = reconcile_messages(incoming, server, sanitized if rest.get("sanitize") else None)
        case {"message": message, "server": server}:
            result = with_adopted_id(message, server)
        case {"existing": existing, "incoming": incoming}:
            result = merge_orphan(existing, incoming)
    assert (result == vector["output"]) is not (vector["id"] in DIFFERENCES)


@pytest.mark.parametrize("vector", [v for v in vectors("sanitize") if v.values[0]["fn"] == "sanitizeMessage"])
def test_sanitized(vector: dict[str, Any]) -> None:
    assert sanitized(vector["input"]["message"]) == vector["output"]
