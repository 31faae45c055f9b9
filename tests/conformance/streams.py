"""Streams made up for properties: legal and illegal chunks that meet on few ids, so that every rule is met."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from runner.core.transcript.chunk import Chunk

CALLS, APPROVALS, TEXTS = ("c1", "c2", "__proto__"), ("p1", "p2"), ("1", "2")

json_values: st.SearchStrategy[Any] = st.sampled_from([None, 0, "s", [1], {"a": 1}, {"b": {"c": []}}])
metadata = st.sampled_from([{"p": {"n": 1}}, {"p": {"n": 2}}])
calls, approvals, texts = map(st.sampled_from, (CALLS, APPROVALS, TEXTS))
deltas = st.sampled_from(
    ['{"a":', "1", "}", '"x', "[", "no json", "\ud83d", "\ude00", "", "-0", "1e400", '"__proto__":']
)


def _chunk(
    kind: str, optional: dict[str, st.SearchStrategy[Any]] | None = None, **required: st.SearchStrategy[Any]
) -> st.SearchStrategy[Chunk]:
    return st.fixed_dictionaries({"type": st.just(kind), **required}, optional=optional or {})


of_provider = {"providerExecuted": st.booleans(), "providerMetadata": metadata}
of_tool = {**of_provider, "toolMetadata": st.sampled_from([{"m": 1}, {}]), "dynamic": st.booleans()}
of_call = {**of_tool, "title": st.sampled_from("AB")}
names = st.sampled_from(["t", "t", "u-v"])

tool_chunks: st.SearchStrategy[Chunk] = st.one_of(
    _chunk(
        "tool-input-start",
        {**of_call, "inputEncoding": st.sampled_from(["json", "text"])},
        toolCallId=calls,
        toolName=names,
    ),
    _chunk("tool-input-delta", toolCallId=calls, inputTextDelta=deltas),
    _chunk("tool-input-delta", toolCallId=calls, inputTextDelta=deltas),
    _chunk("tool-input-available", of_call, toolCallId=calls, toolName=names, input=json_values),
    _chunk("tool-input-error", of_call, toolCallId=calls, toolName=names, input=json_values, errorText=st.just("in")),
    _chunk(
        "tool-approval-request",
        {
            "approvalDescriptor": json_values,
            "inputSchemaInput": json_values,
            "reason": st.just("why"),
            "isAutomatic": st.booleans(),
            "signature": st.just("S"),
        },
        toolCallId=calls,
        approvalId=approvals,
    ),
    _chunk(
        "tool-approval-response", {**of_provider, "reason": st.just("no")}, approvalId=approvals, approved=st.booleans()
    ),
    _chunk("tool-output-available", {**of_tool, "preliminary": st.booleans()}, toolCallId=calls, output=json_values),
    _chunk("tool-output-error", of_tool, toolCallId=calls, errorText=st.just("out")),
    _chunk("tool-output-denied", toolCallId=calls),
)
other_chunks: st.SearchStrategy[Chunk] = st.one_of(
    st.sampled_from([{"type": kind} for kind in ("start-step", "finish-step", "reset-step", "abort", "nobody")]),
    _chunk("start", {"messageId": st.sampled_from(["m", "m2"]), "messageMetadata": json_values}),
    _chunk("finish", {"finishReason": st.sampled_from(["stop", "nonsense"]), "messageMetadata": json_values}),
    *(_chunk(f"{kind}-start", {"providerMetadata": metadata}, id=texts) for kind in ("text", "reasoning")),
    *(
        _chunk(f"{kind}-delta", {"providerMetadata": metadata}, id=texts, delta=deltas)
        for kind in ("text", "reasoning")
    ),
    *(_chunk(f"{kind}-end", {"providerMetadata": metadata}, id=texts) for kind in ("text", "reasoning")),
    _chunk("data-x", {"id": texts, "transient": st.booleans()}, data=json_values),
    _chunk("source-url", sourceId=st.just("s"), url=st.just("https://x.test")),
)
chunks = st.one_of(tool_chunks, tool_chunks, tool_chunks, other_chunks)
streams = st.lists(chunks, max_size=25)
