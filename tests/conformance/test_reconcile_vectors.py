"""Recorded behaviour of another implementation: matching a client's history with the stored one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.core.transcript.provider_view import provider_view
from runner.core.transcript.reconcile import claimed_rows, merge_orphan, reconcile, reconcile_messages, sanitized
from runner.core.transcript.reducer import Fold
from runner.core.transcript.repair import repair
from runner.core.transcript.stored_message import public
from tests.conformance.test_repair_vectors import VECTORS, vectors
from tests.core.test_provider_view import assert_sound

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


STREAMS = sorted((VECTORS.parent / "corpus").glob("*.jsonl"))
ANSWER_DROPPED = {"fuzz-010": "the stream drops a call that was answered: the answer is kept"}


@pytest.mark.parametrize("path", STREAMS, ids=[path.stem for path in STREAMS])
def test_a_stream_replayed_onto_any_part_of_itself_is_the_stream(path: Path) -> None:
    """BP-32; then repaired and shown to a model: I6."""
    for case in map(json.loads, path.read_bytes().splitlines()):
        fold = Fold("") if case["initial"] is None else Fold.of(case["initial"])
        snapshots = []
        for chunk in case["chunks"]:
            fold.apply(chunk if isinstance(chunk, dict) else {})
            snapshots.append(json.dumps(fold.stored()))
        whole = json.loads(snapshots[-1])
        for early in map(json.loads, snapshots[:: max(1, len(snapshots) // 4)]):
            if early["id"] == whole["id"] and len(early["parts"]) <= len(whole["parts"]):
                same = public(reconcile(early, whole))["parts"] == public(whole)["parts"]
                assert same or case["id"] in ANSWER_DROPPED, case["id"]
        (settled,) = repair([whole], superseded=True).messages
        assert Fold.of(settled).message() == public(settled)
        assert_sound(provider_view([settled]))
        assert_sound(provider_view([whole]))
