"""What holds of the fold for every stream (I3)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runner.core.transcript.chunk import Chunk, decode_batch, encode, join
from runner.core.transcript.reducer import Fold, fold_all, public, reduce
from runner.core.transcript.stored_message import MARK, NOTES
from tests.conformance.streams import chunks as any_chunk

IDS = ("a", "b", "__proto__")
letters = st.text(st.sampled_from(["x", "é", "😀", "\ud83d", "\ude00", "\n", '"']), max_size=6)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | letters,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KINDS = (
    *("start", "start-step", "finish-step", "reset-step", "finish", "abort", "error", "message-metadata"),
    *("text-start", "text-delta", "text-end", "reasoning-start", "reasoning-delta", "reasoning-end"),
    *("file", "source-url", "custom", "data-x", "data-", "tool-input-start", "tool-output-available", "nobody-knows"),
)
ids = st.sampled_from(IDS)


def of_kind(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Chunk]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


well_formed: st.SearchStrategy[Chunk] = st.one_of(
    of_kind("start", messageId=ids, messageMetadata=anything),
    of_kind("start-step"),
    of_kind("finish-step"),
    of_kind("reset-step"),
    of_kind("finish", finishReason=st.just("stop")),
    of_kind("message-metadata", messageMetadata=st.dictionaries(ids, anything, max_size=2)),
    *(of_kind(f"{kind}-start", id=ids) for kind in ("text", "reasoning")),
    *(of_kind(f"{kind}-delta", id=ids, delta=letters) for kind in ("text", "reasoning") for _ in range(3)),
    *(of_kind(f"{kind}-end", id=ids) for kind in ("text", "reasoning")),
    of_kind("file", url=letters, mediaType=letters),
    of_kind("data-x", id=ids, data=anything),
    of_kind("data-x", data=anything, transient=st.booleans()),
    of_kind("nobody-knows", id=ids),
)
hostile: st.SearchStrategy[Chunk] = st.dictionaries(
    st.sampled_from(
        ["type", "id", "delta", "messageId", "messageMetadata", "providerMetadata", "data", "finishReason"]
    ),
    anything | st.sampled_from([*KINDS, *IDS]),
    max_size=6,
)
streams = st.lists(st.one_of(well_formed, hostile, any_chunk, any_chunk), max_size=25)
DELTAS = {"text-delta": "delta", "reasoning-delta": "delta", "tool-input-delta": "inputTextDelta"}


def through_json(value: Any) -> Any:
    return json.loads(encode(value))


@given(streams, st.data())
def test_splitting_a_delta_changes_nothing(stream: list[Chunk], data: st.DataObject) -> None:
    split: list[Chunk] = []
    for item in stream:
        kind = item.get("type")
        name = DELTAS.get(kind, "") if isinstance(kind, str) else ""
        if isinstance(delta := item.get(name), str) and delta:
            at = data.draw(st.integers(0, len(delta)))
            split += [{**item, name: delta[:at]}, {**item, name: delta[at:]}]
        else:
            split.append(item)
    one, other = fold_all("m", split), fold_all("m", stream)
    assert without_raw(one.message()) == without_raw(other.message())
    assert one.has_news() == other.has_news()


def without_raw(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what stock clients show of a dynamic call from its second delta on."""
    for part in message["parts"]:
        if part.get("type") == "dynamic-tool":
            part.pop("rawInput", None)
    return message


@given(st.text(max_size=20), st.data())
def test_a_character_may_be_cut_between_its_halves(whole: str, data: st.DataObject) -> None:
    units = whole.encode("utf-16-le", "surrogatepass")
    at = 2 * data.draw(st.integers(0, len(units) // 2))
    halves = [half.decode("utf-16-le", "surrogatepass") for half in (units[:at], units[at:])]
    fold = fold_all(
        "m", [{"type": "text-start", "id": "t"}, *({"type": "text-delta", "id": "t", "delta": h} for h in halves)]
    )
    assert fold.text() == whole


@given(streams)
def test_replay_equals_live_for_every_prefix(stream: list[Chunk]) -> None:
    """I3: live is the fold that goes on; replay reads what was stored, from its first chunk."""
    live = Fold("m")
    for length, item in enumerate(stream, start=1):
        live.apply(item)
        stored = decode_batch(join([encode(each) for each in stream[:length]]))
        assert through_json(live.message()) == through_json(fold_all("m", stored).message())


@given(streams)
def test_a_round_trip_through_json_between_any_two_chunks_changes_nothing(stream: list[Chunk]) -> None:
    steady, stored = Fold("m"), Fold("m")
    for item in stream:
        stored = Fold.load(through_json(stored.dump()))
        for fold in (steady, stored):
            fold.apply(item)
        assert through_json(stored.dump()) == through_json(steady.dump())
        assert stored.closing() == steady.closing()


@given(streams, st.data())
def test_a_snapshot_and_the_tail_make_the_whole(stream: list[Chunk], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(stream)))
    snapshot = through_json(fold_all("m", stream[:at]).dump())
    fold = Fold.load(snapshot)
    for item in stream[at:]:
        fold.apply(item)
    assert through_json(fold.message()) == through_json(fold_all("m", stream).message())


@given(streams)
def test_reading_a_fold_does_not_change_it(stream: list[Chunk]) -> None:
    watched, unwatched = Fold("m"), Fold("m")
    for item in stream:
        watched.apply(item)
        unwatched.apply(item)
        watched.text(), watched.step_text(), watched.message(), watched.dump(), watched.closing()
    assert watched.dump() == unwatched.dump()


@given(streams)
def test_after_closing_nothing_is_open_and_nothing_else_has_changed(stream: list[Chunk]) -> None:
    fold = fold_all("m", stream)
    before = fold.message()
    for item in fold.closing():
        fold.apply(item)
    after = fold.message()
    assert fold.closing() == []
    assert [{**part, "state": 0} for part in after["parts"]] == [{**part, "state": 0} for part in before["parts"]]


@given(streams)
def test_text_is_that_of_the_message(stream: list[Chunk]) -> None:
    fold = fold_all("m", stream)
    assert fold.text() == "".join(part["text"] for part in fold.message()["parts"] if part["type"] == "text")
    assert fold.text().endswith(fold.step_text())


@given(streams)
def test_reduce_is_the_fold_in_single_steps(stream: list[Chunk]) -> None:
    fold, message = Fold("m"), {"id": "m", "role": "assistant", "parts": list[Any]()}
    for item in stream:
        before = encode(message)
        effect = fold.apply(item)
        reduction = reduce(message, item)
        assert encode(message) == before
        assert (reduction.forward, reduction.rejected) == (effect.forward, effect.rejected)
        message = through_json(reduction.message)
    assert through_json(public(message)) == through_json(fold.message())
    assert through_json(Fold.of(message).message()) == through_json(fold.message())


@given(streams)
def test_what_is_refused_changes_nothing_and_is_sent_to_nobody(stream: list[Chunk]) -> None:
    fold = Fold("m")
    for item in stream:
        before = fold.dump()
        effect = fold.apply(item)
        if not effect.forward:
            assert effect.rejected or item["type"].startswith("tool-")
        if effect.rejected:
            assert effect.forward == ()
            assert fold.dump() == before


RESULTS = ("state", "output", "errorText", "approval")


@given(streams)
def test_a_settled_call_never_changes_its_result(stream: list[Chunk]) -> None:
    """I4, and I15: an answered approval is never asked again."""
    fold, settled = Fold("m"), dict[int, Any]()
    for item in stream:
        if item.get("type") in ("start", "reset-step"):
            settled = {}  # parts may go
        fold.apply(item)
        parts = fold.message()["parts"]
        for index, result in settled.items():
            assert {name: parts[index].get(name) for name in RESULTS} == result
        settled = {
            index: {name: part.get(name) for name in RESULTS}
            for index, part in enumerate(parts)
            if part.get("state") in ("output-error", "output-denied")
            or (part.get("state") == "output-available" and part.get("preliminary") is not True)
        }


odd_parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool-t", "dynamic-tool", "step-start", "data-x"]) | anything},
    optional={
        **dict.fromkeys(("id", "toolCallId"), ids | st.sampled_from(["c1", "c2"]) | anything),
        **dict.fromkeys(("text", "input", "rawInput", "output", "toolName", "preliminary", MARK, "approval"), anything),
        "state": st.sampled_from(["input-streaming", "approval-requested", "output-available"]) | anything,
    },
)
odd_notes = st.fixed_dictionaries(
    {},
    optional={
        "open": st.dictionaries(
            st.sampled_from(["text", "reasoning"]), anything | st.just({"1": 0, "2": 0}), max_size=2
        ),
        "calls": anything | st.just({"c1": {"text": "[", "toolName": "t"}, "c2": {"text": 5}}),
    },
)
odd_messages = st.fixed_dictionaries(
    {"parts": st.lists(odd_parts | anything, max_size=4) | anything},
    optional={
        "id": anything,
        "role": st.just("assistant") | anything,
        "metadata": anything,
        NOTES: odd_notes | anything,
    },
)


@given(odd_messages, st.lists(any_chunk | anything, max_size=8))
def test_no_stored_message_and_no_chunk_is_too_odd(message: dict[str, Any], stream: list[Any]) -> None:
    for item in stream:
        message = through_json(reduce(message, item).message)
    assert encode(public(message))


@given(streams)
def test_a_fold_does_not_change_the_chunks_it_is_given(stream: list[Chunk]) -> None:
    before = [encode(item) for item in stream]
    fold_all("m", stream).dump()
    assert [encode(item) for item in stream] == before
