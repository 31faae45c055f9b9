"""Recorded behaviour of another implementation: what a model is shown of a history.

It leaves some calls without a result and refuses the prompt later; ours gives each call its result. Approvals are a
matter of the transcript, no provider reads them, so they are left out of the comparison.
"""

from __future__ import annotations

from typing import Any

import pytest

from runner.core.transcript.provider_view import as_json, provider_view
from tests.conformance.test_repair_vectors import vectors

GETS_RESULT = "a call without a result gets one (I6): there it is sent alone and refused, or dropped"
KEPT_CALL = "a call that is ignored there because it is incomplete is kept, with its result (I6)"
OBJECT_INPUT = "providers want an object as input: other values become one, or {}"
JOINED = "user messages that follow each other are one message, since strict providers want alternation"
TOLERANT = "the view never fails: what no provider knows is left out, URLs are the adapter's to check"
PROVIDER_ALONE = "the provider alone can say how its own call ended: without a result both are left out"
DIFFERENCES = {
    **dict.fromkeys((0, 2, 4, 6, 14, 16, 18, 20, 34, 37), GETS_RESULT),
    **dict.fromkeys((1, 3, 5, 7, 15, 17, 19, 21, 35, 38), KEPT_CALL),
    **dict.fromkeys((36, 49), OBJECT_INPUT),
    **dict.fromkeys((43, 45), TOLERANT),
    30: PROVIDER_ALONE,
    46: JOINED,
}


def theirs(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return {"role": message["role"], "content": [{"type": "text", "text": content}]}
    told = [part for part in content if not part["type"].startswith("tool-approval")]
    return {"role": message["role"], "content": [{**part, **denial(part)} for part in told]}


def denial(part: dict[str, Any]) -> dict[str, Any]:
    output = part.get("output", {})
    said_no = output.get("type") == "execution-denied" or output.get("value") == "Tool call execution denied."
    return {"output": {"type": "denied"}} if said_no else {}


def ours(item: dict[str, Any]) -> dict[str, Any]:
    match item:
        case {"type": "tool-call"}:
            made = {"toolCallId": item["call_id"], "toolName": item["tool_name"], "input": item["input"]}
            made |= {"providerExecuted": True} if item["provider_executed"] else {}
        case {"type": "tool-result"}:
            made = {"toolCallId": item["call_id"], "toolName": item["tool_name"], "output": output(item)}
        case {"type": "file"}:
            made = {"mediaType": item["media_type"], "data": {"type": "url", "url": item["url"]}}
            made |= {"filename": item["filename"]} if "filename" in item else {}
        case _:
            made = {"text": item["text"]}
    marks = {"providerOptions": item["metadata"]} if "metadata" in item else {}
    return {"type": item["type"], **made, **marks}


def output(item: dict[str, Any]) -> dict[str, Any]:
    match item["outcome"], item["value"]:
        case "ok", str(text):
            return {"type": "text", "value": text}
        case "ok", value:
            return {"type": "json", "value": value}
        case "denied", _:
            return {"type": "denied"}
        case _, text:
            return {"type": "error-text", "value": text}


@pytest.mark.parametrize("vector", vectors("convert_to_model_messages"))
def test_what_a_model_is_shown(vector: dict[str, Any]) -> None:
    view = as_json(provider_view(vector["input"]["messages"]))
    mine = [{"role": message["role"], "content": [ours(item) for item in message["content"]]} for message in view]
    expected = vector.get("output", {"modelMessages": None})["modelMessages"]
    shown = [told for message in expected or [] if (told := theirs(message))["content"]]
    agrees = expected is not None and mine == shown
    assert agrees is not (int(vector["id"][-3:]) in DIFFERENCES), (mine, expected)
