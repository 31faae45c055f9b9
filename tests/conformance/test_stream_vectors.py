"""Recorded behaviour of other implementations: unfinished JSON, merged metadata, event streams, rebuilt partials.

`DIFFERENT` says where ours goes another way, and why.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from runner.core.transcript.event_stream import chunks_in
from runner.core.transcript.metadata import Unmergeable, merged
from runner.core.transcript.partial_json import MISSING, completed, parse_json, parse_partial
from runner.core.transcript.reducer import Fold
from runner.core.transcript.tool_state import has_settled_result
from runner.core.transcript.wire import Refusal, Why, parse_chunk
from tests.conformance.corpus import vectors

NOT_JSON = (Why.NOT_JSON,)


def named(name: str, *functions: str) -> list[Any]:
    return [pytest.param(v, id=v["id"]) for v in vectors(name) if not functions or v["fn"] in functions]


@pytest.mark.parametrize("vector", [v for v in named("parse_partial_json") if "text" in v.values[0]["input"]])
def test_unfinished_json(vector: dict[str, Any]) -> None:
    text, expected = vector["input"]["text"], vector["output"]
    value = expected.get("value", MISSING)
    if isinstance(value, dict) and "$number" in value:
        value = None  # infinity: JSON has no such number
    assert parse_partial(text) == value
    assert expected.get("fixed") in (None, completed(text))
    if expected["state"] != "successful-parse":
        with pytest.raises(ValueError, match=r"."):
            parse_json(text)


@pytest.mark.parametrize("vector", named("merge_objects"))
def test_merged_metadata(vector: dict[str, Any]) -> None:
    base, overrides = vector["input"]["base"], vector["input"]["overrides"]
    if "error" in vector:
        with pytest.raises(Unmergeable):
            merged(base, overrides)
    else:
        assert merged(base, overrides) == vector["output"]


@pytest.mark.parametrize("vector", named("sse_parse"))
@pytest.mark.parametrize("cut", ["as recorded", "after every byte"])
def test_event_streams(vector: dict[str, Any], cut: str) -> None:
    blocks = [base64.b64decode(block) for block in vector["input"]["blocks"]]
    if cut == "after every byte":
        blocks = [bytes([byte]) for block in blocks for byte in block]
    assert [_outcome(found) for found in chunks_in(blocks)] == vector["output"]


def _outcome(found: Any) -> dict[str, Any]:
    if not isinstance(found, Refusal):
        return {"ok": found}
    is_text = found.why in (Why.NOT_JSON, Why.FORBIDDEN_KEY)
    return {"error": "AI_JSONParseError" if is_text else "AI_TypeValidationError"}


_CLIENT = "a delta without a start is refused, as a stock client refuses it"
_SHAPE = "a static part has no toolName, as at the AI SDK"
DIFFERENT = {
    "aiSdkRecoveryCodec.toRecoveryPartial-001": _CLIENT,
    "aiSdkRecoveryCodec.toRecoveryPartial-003": _SHAPE,
    "aiSdkRecoveryCodec.toRecoveryPartial-004": _CLIENT,
    "aiSdkRecoveryCodec.toRecoveryPartial-005": f"{_SHAPE}, and unfinished input is seen",
}


@pytest.mark.parametrize("vector", named("codec", "aiSdkRecoveryCodec.toRecoveryPartial"))
def test_partials_rebuilt_from_a_log(vector: dict[str, Any]) -> None:
    fold = Fold("m")
    for body in vector["input"]["bodies"]:
        if not isinstance(chunk := parse_chunk(body), Refusal):
            fold.apply(chunk)
    parts = fold.message()["parts"]
    ours = {"text": fold.text(), "parts": parts, "hasSettledToolResults": has_settled_result(parts)}
    assert (ours != vector["output"]) is (vector["id"] in DIFFERENT), json.dumps(ours)
