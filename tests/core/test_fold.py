"""The fold, chunk by chunk: what each does to the message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.core.transcript import chunk
from runner.core.transcript.chunk import Chunk
from runner.core.transcript.reducer import Fold, fold_all


def text(part_id: str, *deltas: str, end: bool = True) -> list[Chunk]:
    chunks: list[Chunk] = [{"type": "text-start", "id": part_id}]
    chunks += [{"type": "text-delta", "id": part_id, "delta": delta} for delta in deltas]
    return [*chunks, {"type": "text-end", "id": part_id}] if end else chunks


def parts(*chunks: Chunk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fold_all("m", list(chunks)).message()["parts"]
    return found


def test_a_whole_answer() -> None:
    fold = fold_all(
        "m",
        [
            chunk.start("msg-1"),
            chunk.start_step(),
            {"type": "reasoning-start", "id": "r"},
            {"type": "reasoning-delta", "id": "r", "delta": "hm"},
            {"type": "reasoning-end", "id": "r"},
            *text("t", "Hel", "lo"),
            chunk.finish_step(),
            chunk.finish("stop"),
        ],
    )
    assert fold.message() == {
        "id": "msg-1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "id": "r", "text": "hm", "state": "done"},
            {"type": "text", "text": "Hello", "state": "done"},
        ],
    }
    assert (fold.started, fold.in_step, fold.finished_steps, fold.finish_reason) == (True, False, 1, "stop")
    assert fold.closing() == []


def test_nothing_yet_is_an_empty_message() -> None:
    fold = Fold("m")
    assert fold.message() == {"id": "m", "role": "assistant", "parts": []}
    assert (fold.started, fold.in_step, fold.text(), fold.step_text()) == (False, False, "", "")


def test_a_delta_goes_to_the_part_of_its_own_id() -> None:
    chunks = [*text("a", "1", end=False), *text("b", "2", end=False)]
    chunks += [{"type": "text-delta", "id": "a", "delta": "3"}, {"type": "text-delta", "id": "b", "delta": "4"}]
    assert [part["text"] for part in parts(*chunks)] == ["13", "24"]


def test_text_and_reasoning_of_one_id_are_two_parts() -> None:
    both: list[Chunk] = [{"type": "text-start", "id": "x"}, {"type": "reasoning-start", "id": "x"}]
    both += [{"type": "text-delta", "id": "x", "delta": "T"}, {"type": "reasoning-delta", "id": "x", "delta": "R"}]
    assert [(part["type"], part["text"]) for part in parts(*both)] == [("text", "T"), ("reasoning", "R")]


def test_an_id_that_ended_may_begin_again_as_a_new_part() -> None:
    assert [part["text"] for part in parts(*text("t", "a"), *text("t", "b"))] == ["a", "b"]


@pytest.mark.parametrize(
    "stray",
    [
        {"type": "text-delta", "id": "zz", "delta": "x"},
        {"type": "text-delta", "id": "t", "delta": 5},
        {"type": "text-delta", "id": ["t"], "delta": "x"},
        {"type": "text-delta"},
        {"type": "text-end", "id": "zz"},
        {"type": "text-end", "id": {}},
        {"type": "text-start"},
        {"type": "reasoning-delta", "id": "t", "delta": "x"},
        {"type": "unknown", "id": "t"},
        {"type": 5},
        {"type": None},
        {},
        {"type": "error", "errorText": "boom"},
        {"type": "abort"},
        {"type": "message-metadata"},
        {"type": "data-x", "transient": True, "data": 1},
    ],
)
def test_what_is_malformed_unknown_or_transient_changes_nothing(stray: Chunk) -> None:
    fold = fold_all("m", text("t", "a", end=False))
    before = fold.dump()
    fold.apply(stray)
    assert fold.dump() == before


def test_a_start_without_an_id_keeps_the_one_that_was_allocated() -> None:
    """BP-08."""
    assert fold_all("m", [{"type": "start"}]).message_id == "m"
    assert fold_all("m", [{"type": "start", "messageId": None}]).message_id == "m"


def test_provider_metadata_is_replaced_and_not_merged() -> None:
    started: Chunk = {"type": "text-start", "id": "t", "providerMetadata": {"a": {"n": 1}}}
    delta: Chunk = {"type": "text-delta", "id": "t", "delta": "x", "providerMetadata": {"b": {}}}
    ended: Chunk = {"type": "text-end", "id": "t", "providerMetadata": {"c": {}}}
    assert parts(started)[0]["providerMetadata"] == {"a": {"n": 1}}
    assert parts(started, delta)[0]["providerMetadata"] == {"b": {}}
    assert parts(started, delta, ended)[0]["providerMetadata"] == {"c": {}}


def test_message_metadata_is_merged_deeply() -> None:
    fold = fold_all(
        "m",
        [
            {"type": "start", "messageMetadata": {"a": {"x": 1}, "l": [1]}},
            {"type": "message-metadata", "messageMetadata": {"a": {"y": 2}, "l": [2], "n": None}},
            {"type": "finish", "messageMetadata": {"done": True}},
        ],
    )
    assert fold.message()["metadata"] == {"a": {"x": 1, "y": 2}, "l": [2], "n": None, "done": True}
    assert fold.finish_reason == "stop"


def test_data_of_one_type_and_id_is_replaced_in_its_place() -> None:
    stream: list[Chunk] = [
        {"type": "data-w", "id": "1", "data": {"n": 1}},
        {"type": "data-w", "id": "2", "data": {"n": 2}},
        {"type": "data-v", "id": "1", "data": {"n": 3}},
        {"type": "data-w", "id": "1", "data": {"n": 4}},
        {"type": "data-w", "data": {"n": 5}},
        {"type": "data-w", "data": {"n": 6}},
    ]
    assert [(part["type"], part["data"]["n"]) for part in parts(*stream)] == [
        ("data-w", 4),
        ("data-w", 2),
        ("data-v", 3),
        ("data-w", 5),
        ("data-w", 6),
    ]


@pytest.mark.parametrize(
    "whole",
    [
        {"type": "file", "url": "u", "mediaType": "a/b"},
        {"type": "reasoning-file", "url": "u", "mediaType": "a/b", "providerMetadata": {"p": {}}},
        {"type": "source-url", "sourceId": "s", "url": "u", "title": "t"},
        {"type": "source-document", "sourceId": "s", "mediaType": "a/b", "title": "t", "filename": "f"},
        {"type": "custom", "kind": "a.b"},
        {"type": "steering-message", "id": "1", "parts": [{"type": "text", "text": "stop"}]},
    ],
)
def test_a_part_that_comes_whole_keeps_what_clients_keep_of_it(whole: Chunk) -> None:
    assert parts({**whole, "unheard": {"of": [1]}}) == [whole]


def test_data_is_kept_with_fields_that_nobody_knows() -> None:
    """I16."""
    whole = {"type": "data-x", "data": None, "unheard": {"of": [1]}}
    assert parts(whole) == [whole]


def test_closing_ends_every_open_part_oldest_first() -> None:
    fold = fold_all(
        "m",
        [*text("b", "1", end=False), {"type": "reasoning-start", "id": "r"}, *text("a", end=False), *text("done")],
    )
    closing = fold.closing()
    assert closing == [
        {"type": "text-end", "id": "b"},
        {"type": "reasoning-end", "id": "r"},
        {"type": "text-end", "id": "a"},
    ]
    for item in closing:
        fold.apply(item)
    assert fold.closing() == []
    assert {part["state"] for part in fold.message()["parts"]} == {"done"}


def test_reset_step_drops_what_the_unfinished_step_made_and_only_that() -> None:
    stream = [chunk.start_step(), *text("t", "kept"), chunk.finish_step(), chunk.start_step()]
    stream += [*text("u", "gone"), *text("t", "half", end=False), {"type": "file", "url": "u"}]
    fold = fold_all("m", [*stream, chunk.reset_step()])
    assert fold.text() == "kept"
    assert [part["type"] for part in fold.message()["parts"]] == ["step-start", "text", "step-start"]
    assert fold.closing() == []
    assert fold.in_step
    for item in [{"type": "text-delta", "id": "t", "delta": "late"}, *text("t", "again")]:
        fold.apply(item)
    assert fold.step_text() == "again"


def test_reset_step_before_any_step_drops_all_parts() -> None:
    assert parts(*text("t", "a", end=False), chunk.reset_step()) == []


def test_reset_step_ends_a_part_that_a_step_before_left_open() -> None:
    """As at clients: they forget every open id."""
    fold = fold_all("m", [chunk.start_step(), *text("t", "a", end=False), chunk.start_step(), chunk.reset_step()])
    assert fold.apply({"type": "text-delta", "id": "t", "delta": "b"}).rejected
    assert (fold.text(), fold.closing()) == ("a", [])


def test_the_text_of_the_step_is_that_of_the_last_step() -> None:
    fold = fold_all("m", [chunk.start_step(), *text("a", "one"), chunk.start_step(), *text("b", "two", "!", end=False)])
    assert (fold.text(), fold.step_text()) == ("onetwo!", "two!")


def test_two_halves_of_a_character_become_one() -> None:
    fold = fold_all("m", text("t", "a\ud83d", end=False))
    assert fold.text() == "a\ud83d"
    again = Fold.load(json.loads(json.dumps(fold.dump())))
    for each in (fold, again):
        each.apply({"type": "text-delta", "id": "t", "delta": "\ude00b"})
        assert each.text() == "a😀b"


def test_a_lone_half_stays() -> None:
    assert parts(*text("t", "\ude00", "\ud83d", "é"))[0]["text"] == "\ude00\ud83dé"


def test_a_message_is_a_value_of_its_own() -> None:
    fold = fold_all("m", [{"type": "start", "messageMetadata": {"a": []}}, {"type": "data-x", "data": {"n": [1]}}])
    message = fold.message()
    message["parts"][0]["data"]["n"].append(2)
    message["metadata"]["a"].append(1)
    assert fold.message()["parts"][0]["data"] == {"n": [1]}
    assert fold.message()["metadata"] == {"a": []}


def test_one_snapshot_can_be_loaded_twice() -> None:
    dumped = fold_all("m", text("t", "a", end=False)).dump()
    first, second = Fold.load(dumped), Fold.load(dumped)
    first.apply({"type": "text-end", "id": "t"})
    first.apply({"type": "file", "url": "u"})
    second.apply({"type": "text-delta", "id": "t", "delta": "b"})
    assert second.message()["parts"] == [{"type": "text", "text": "ab", "state": "streaming"}]


def test_what_could_be_encoded_can_be_folded_and_stored() -> None:
    """A fold that fails on a stored chunk would fail at every attempt."""
    tower: Any = "top"
    for _ in range(chunk.MAX_DEPTH - 1):
        tower = [tower]
    deepest: Chunk = {"type": "data-deep", "data": tower}
    with pytest.raises(ValueError, match="nested"):
        chunk.encode({"type": "data-deep", "data": [tower]})
    encoded = chunk.encode(deepest)
    fold = fold_all("m", chunk.decode_batch(chunk.join([encoded])))
    assert fold.message()["parts"] == [deepest]
    assert Fold.load(json.loads(chunk.to_bytes(fold.dump()))).message() == fold.message()


def test_a_chunk_may_hold_many_values_side_by_side() -> None:
    wide: Chunk = {"type": "data-wide", "data": [[{}]] * 1_000}
    assert chunk.decode_batch(chunk.join([chunk.encode(wide)])) == [wide]
