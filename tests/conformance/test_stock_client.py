"""A stock client sees the message that we store: what we forward, folded by the AI SDK itself, makes the same one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from runner.core.transcript.chunk import Chunk
from runner.core.transcript.reducer import Fold
from runner.core.transcript.wire import Refusal, parse_chunk
from tests.conformance.corpus import CATEGORIES, as_json, cases, fold_of, mode_of, unseen
from tests.conformance.stock_reducer import StockReducer, stock_reducer
from tests.conformance.streams import streams
from tests.core.test_wire import altered_chunks

pytestmark = pytest.mark.node

COMPARED = ("id", "metadata", "parts")


def seen_alike(ours: Any, theirs: Any, hidden: list[str]) -> bool:
    one, other = (unseen(as_json(message), hidden) for message in (ours, theirs["message"]))
    return not theirs["stopped"] and all(one.get(name) == other.get(name) for name in COMPARED)


@pytest.fixture(scope="module")
def stock() -> Iterator[StockReducer]:
    with stock_reducer() as reducer:
        yield reducer


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_corpus(stock: StockReducer, category: str) -> None:
    for case in cases(category):
        fold = fold_of(case)
        sent = [chunk for item in case["chunks"] if isinstance(item, dict) for chunk in fold.apply(item).forward]
        answer = stock.ask({"chunks": sent, "initial": case["initial"], "mode": mode_of(case)})
        assert seen_alike(fold.message(), answer, case["expected"].get("unseen") or []), case["id"]


@settings(max_examples=300)
@given(streams, streams)
def test_any_stream(stock: StockReducer, before: list[Chunk], stream: list[Chunk]) -> None:
    """From nothing, or from the message that an earlier stream left stored."""
    initial = as_json(_folded(Fold(""), before)[0]) if before else None
    ours, sent, hidden = _folded(Fold("") if initial is None else Fold.of(initial), stream)
    assert seen_alike(ours, stock.ask({"chunks": sent, "initial": initial, "mode": None}), hidden)


def _folded(fold: Fold, stream: list[Chunk]) -> tuple[Any, list[Chunk], list[str]]:
    """The message, what is sent, and the calls whose input was filled after the answer."""
    sent: list[Chunk] = []
    hidden: list[str] = []
    for chunk in stream:
        effect = fold.apply(chunk)
        sent += effect.forward
        if chunk["type"] == "tool-input-available" and not effect.forward:
            hidden.append(chunk["toolCallId"])
    return fold.message(), sent, hidden


@settings(max_examples=500)
@given(altered_chunks)
def test_the_wire_takes_what_we_take(stock: StockReducer, chunk: Any) -> None:
    text = json.dumps(chunk)
    assert stock.ask({"wire": [text]})["taken"] == [not isinstance(parse_chunk(text), Refusal)]


ODD_TEXTS = (
    *('{"type":"start","type":"finish"}', '{"type":"finish","x":NaN}', '\ufeff{"type":"start"}', ' {"type":"start"} '),
    *('{"type":"data-x","data":1e400}', '{"type":"data-x","data":-0}', '{"type":"data-x","data":"\\ud83d"}'),
    *('{"type":"data-x","data":01}', '{"type":"data-x","data":"\t"}', '{"type":"data-x","data":1.}', "{}", "", "nul"),
    *('{"type":"start","__proto__":1}', '{"type":"start","\\u005f_proto__":1}', '{"type":"start","constructor":1}'),
    *('{"type":"text-start","id":"a","providerMetadata":{"p":{"x":1e400}}}', '["start"]', '{"type":["start"]}'),
    '{"type":"data-x","data":{"constructor":{"prototype":1}}}',
    '{"type":"data-x","data":' + "9" * 5_000 + "}",
)


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: text[:60])
def test_the_wire_reads_odd_texts_as_we_do(stock: StockReducer, text: str) -> None:
    assert stock.ask({"wire": [text]})["taken"] == [not isinstance(parse_chunk(text), Refusal)]
