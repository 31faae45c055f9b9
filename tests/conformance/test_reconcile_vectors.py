"""Recorded behaviour of another implementation: matching a client's history with the stored one."""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.transcript.reconcile import claimed_rows, merge_orphan, reconcile_messages, sanitized
from tests.conformance.test_repair_vectors import vectors

OWN_RESULT = "an id used twice in one message: each call takes the result of its own record, never of the other"
OWN_ROW = "an id used twice in one message: the calls are compared pair by pair, so an equal copy finds its row"
DIFFERENCES = {
    "reconcileMessages-019": OWN_RESULT,
    "reconcileMessages-021": OWN_ROW,
    "reconcileMessages-025": OWN_RESULT,
    "reconcileMessages-033": OWN_RESULT,
    "reconcileMessages-038": OWN_RESULT,
    "reconcileMessages-042": OWN_ROW,
}


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
