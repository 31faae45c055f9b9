"""Recorded behaviour of other implementations: settled calls, waiting calls, updates, input, repair, valid shapes.

The table at each difference says where ours goes another way, and why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.core.transcript.repair import repair
from runner.core.transcript.tool_state import (
    Part,
    State,
    answered,
    awaits_human,
    has_incomplete_batch,
    has_settled_result,
    is_settled,
    normalized_input,
    state_of,
    with_approval,
    with_error,
    with_output,
)
from tests.core.test_repair_properties import is_valid_message

VECTORS = Path(__file__).parent / "data" / "vectors"

CUT = "The tool call was interrupted before a result was recorded."
PASSED_BY = "The tool call was approved but did not run before the next turn started."


def vectors(name: str) -> list[Any]:
    lines = (VECTORS / f"{name}.jsonl").read_bytes().splitlines()
    return [pytest.param(vector, id=vector["id"]) for vector in map(json.loads, lines)]


def names(tools: list[Any] | None) -> frozenset[str]:
    return frozenset(tool["name"] for tool in tools or [] if tool and "name" in tool)


@pytest.mark.parametrize("vector", vectors("tool_settled"))
def test_settled(vector: dict[str, Any]) -> None:
    match vector["input"]:
        case {"part": part}:
            assert is_settled(part) is vector["output"]
        case {"parts": parts}:
            assert has_settled_result(parts) is vector["output"]


@pytest.mark.parametrize("vector", vectors("normalize_tool_input"))
def test_normalized_input(vector: dict[str, Any]) -> None:
    value, changed = normalized_input(vector["input"].get("raw"))
    assert {"input": value, "changed": changed} == vector["output"]


@pytest.mark.parametrize("vector", vectors("client_interaction"))
def test_waiting_for_a_client(vector: dict[str, Any]) -> None:
    match vector["input"]:
        case {"part": part, "clientTools": tools}:
            assert awaits_human(part, names(tools)) is vector["output"]
        case {"messages": messages}:
            assert has_incomplete_batch(messages) is vector["output"]


def upstream_hook(ask_user_to_text: bool) -> Any:
    def hook(part: Part) -> Part:
        if ask_user_to_text and part["type"] == "tool-ask_user":
            return {"type": "text", "text": part["input"]["prompt"]}
        text = PASSED_BY if part.get("state") == "approval-responded" else CUT
        return {**part, "state": "output-error", "errorText": text}

    return hook


ONE_RESULT = "one call recorded twice in a step is one call: its first settled record, else the furthest one"
REPAIR_DIFFERENCES = {f"repairInterruptedToolParts-{number:03}": ONE_RESULT for number in (42, 57, 67)}


@pytest.mark.parametrize("vector", vectors("repair_transcript"))
def test_repair(vector: dict[str, Any]) -> None:
    given, expected = vector["input"], vector["output"]
    tools = given.get("clientTools")
    result = repair(
        given["messages"],
        upstream_hook(given.get("askUserToText", False)),
        client_tools=names(tools),
        continuation=not given.get("repairApprovalResponded", False),
        superseded=tools is None,
    )
    assert result.problems == ()
    agrees = {
        "messages": result.messages,
        "removedToolCalls": len(result.repaired),
        "normalizedInputs": len(result.normalized),
        "toolCallIds": list(result.repaired),
        "changed": [index in result.touched for index in range(len(given["messages"]))],
    } == expected
    assert agrees is not (vector["id"] in REPAIR_DIFFERENCES)


NO_PAUSED = "a settled result never changes (I4); a run that waits holds no output"
UPDATE_DIFFERENCES = {"applyToolUpdate-059": NO_PAUSED}


def updated(parts: list[Part], update: dict[str, Any]) -> tuple[int, list[Part]] | None:
    def change(part: Part) -> Part | None:
        match update:
            case {"kind": "approval", "approved": bool(approved)}:
                return with_approval(part, approved)
            case {"kind": "result", "overrideState": "output-error"}:
                return with_error(part, update.get("errorText", "Tool execution denied by user"), by_client=True)
            case {"kind": "result"}:
                return with_output(part, update["output"], by_client=True)
            case {"kind": "cross", "updateType": "output-error"}:
                return with_error(part, update.get("errorText", "Tool execution failed"))
            case {"kind": "cross"}:
                return with_output(part, update["output"], preliminary=update.get("preliminary", False))
            case _:
                return None

    return answered(parts, update["toolCallId"], change)


@pytest.mark.parametrize("vector", vectors("tool_updates"))
def test_updates(vector: dict[str, Any]) -> None:
    """Ours says None both for `no such call` and for `its result stands`, and a final output carries no mark."""
    given, expected = vector["input"], vector["output"]
    result = updated(given["parts"], given["update"])
    if expected is not None and expected["sameReference"]:
        assert is_settled(expected["parts"][expected["index"]])
        expected = None
    for part in [] if expected is None else expected["parts"]:
        if part.get("preliminary") is False:
            del part["preliminary"]
    agrees = result == (None if expected is None else (expected["index"], expected["parts"]))
    assert agrees is not (vector["id"] in UPDATE_DIFFERENCES)


@pytest.mark.parametrize("vector", vectors("validate_ui_messages"))
def test_valid_shapes(vector: dict[str, Any]) -> None:
    """The check that our own properties use for `a stock client accepts it` is the stock client's."""
    messages = vector["input"]["messages"]
    assert (bool(messages) and all(map(is_valid_message, messages))) is vector["output"]["success"]


def test_every_state_of_the_recordings_is_known() -> None:
    parts = [part for vector in vectors("tool_updates") for part in vector.values[0]["input"]["parts"]]
    assert {state_of(part) for part in parts if part["type"] != "text"} == set(State)
