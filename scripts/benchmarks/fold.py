"""fold: chunks made into a message per second, and what must not grow with a turn's length.

Pure reduction first, in this process, medians of rounds:
  chunks_per_s_corpus   every stream of tests/conformance/data/corpus, each to its finished message
  chunks_per_s_text     one text of 10,000 deltas to its finished message
  tool_input_ratio      time of a tool input of 1,000,000 characters in deltas of 20, over that of 100,000; 10 is linear
Then recovery, on a server of its own: a turn whose first step says 200,000 characters in 1,000 chunks, in 10,000 and in
100,000 is rebuilt from its snapshot and the 200 chunks behind it, by `engine.rebuild`. `rebuild_ratio` is the last over
the first; `chunks_read` is how many chunks the rebuilds read, of each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measure import Metrics, median, own_server, rounded, say
from benchmarks.runs import claim_runs, record_runs, records
from runner.bootstrap import make_links
from runner.core.transcript import chunk as chunks
from runner.core.transcript.chunk import Chunk
from runner.core.transcript.reducer import Fold, fold_all
from runner.engine.rebuild import pages, rebuild
from runner.engine.runtime import Links, writer_limits
from runner.engine.writer import AppendPipe, RunWriter
from runner.settings import load_settings
from runner.store import calls
from runner.store.answers import Code
from runner.store.keys import RunKeys
from runner.store.records import Snapshot

SMOKE = ["--rounds", "1", "--deltas", "100", "--characters", "2000", "--said", "10", "100", "--tail", "10"]
CORPUS = Path(__file__).resolve().parents[2] / "tests" / "conformance" / "data" / "corpus"
DELTA_CHARS = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--deltas", type=int, default=10_000, help="deltas of the text")
    parser.add_argument("--characters", type=int, default=1_000_000, help="of the larger tool input")
    parser.add_argument(
        "--said", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="chunks before a snapshot"
    )
    parser.add_argument("--tail", type=int, default=200, help="chunks behind the snapshot")


def run(options: argparse.Namespace) -> Metrics:
    """Rates of the reducer, and how its costs grow."""
    metrics: dict[str, int | float] = {}
    streams = _corpus()
    count = sum(map(len, streams))
    metrics["chunks_per_s_corpus"] = round(count / _timed(options.rounds, lambda: [_message(s) for s in streams]))
    text = _text(options.deltas, DELTA_CHARS)
    metrics["chunks_per_s_text"] = round(len(text) / _timed(options.rounds, lambda: _message(text)))
    small, large = (_tool_input(size) for size in (options.characters // 10, options.characters))
    small_s, large_s = (_timed(options.rounds, partial(_message, stream)) for stream in (small, large))
    metrics |= {"tool_input_ms": large_s * 1e3, "tool_input_ratio": large_s / small_s}
    say(f"a tool input of {options.characters:,} characters takes {large_s / small_s:.1f} times that of a tenth of it")
    with own_server() as server:
        metrics |= asyncio.run(_recovery(server.url, options))
    return rounded(metrics)


def _corpus() -> list[list[Chunk]]:
    lines = [line for path in sorted(CORPUS.glob("*.jsonl")) for line in path.read_text("utf-8").strip().split("\n")]
    return [[item for item in json.loads(line)["chunks"] if isinstance(item, dict)] for line in lines]


def _message(stream: list[Chunk]) -> object:
    return fold_all("m", stream).message()


def _timed(rounds: int, act: Callable[[], object]) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return median(taken)


def _text(deltas: int, size: int) -> list[Chunk]:
    said: list[Chunk] = [{"type": "text-delta", "id": "t", "delta": "x" * size}] * deltas
    return [
        chunks.start("m"),
        chunks.start_step(),
        {"type": "text-start", "id": "t"},
        *said,
        {"type": "text-end", "id": "t"},
    ]


def _tool_input(size: int) -> list[Chunk]:
    text = json.dumps({"text": "x" * size})
    pieces = [text[at : at + DELTA_CHARS] for at in range(0, len(text), DELTA_CHARS)]
    call: Chunk = {"type": "tool-input-start", "toolCallId": "c", "toolName": "write"}
    return [call, *({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": piece} for piece in pieces)]


async def _recovery(url: str, options: argparse.Namespace) -> dict[str, int | float]:
    links = make_links(load_settings(redis_url=url))
    try:
        taken = [await _rebuild_ms(links, said, options) for said in options.said]
    finally:
        links.dispatcher.close()
        await links.store.aclose()
    for said, ms in zip(options.said, taken, strict=True):
        say(f"a turn of {said:,} chunks is rebuilt from its snapshot in {ms:.2f} ms")
    named = {f"rebuild_ms_{said}": ms for said, ms in zip(options.said, taken, strict=True)}
    return {**named, "rebuild_ratio": taken[-1] / taken[0], "chunks_read": options.tail}


async def _rebuild_ms(links: Links, said: int, options: argparse.Namespace) -> float:
    """Writes a turn with one finished step and a tail, then rebuilds it as a new attempt does."""
    (run_keys,) = await record_runs(links.store, links.keys, 1)
    await claim_runs(links.store, [run_keys])
    characters = max(options.said) * 2
    step = [*_text(said, max(1, characters // said)), chunks.finish_step()]
    fold = await _write(links, run_keys, step, 0)
    await links.store.run(calls.save_snapshot(run_keys, 1, Snapshot(seq=len(step), fold=fold.dump())))
    tail = [chunks.start_step(), {"type": "text-start", "id": "u"}]
    tail += [{"type": "text-delta", "id": "u", "delta": "y" * DELTA_CHARS}] * (options.tail - len(tail))
    await _write(links, run_keys, tail, len(step))
    (record,) = await records(links, [run_keys])
    taken = []
    for _ in range(max(3, options.rounds)):
        began = time.perf_counter()
        rebuilt = await rebuild(links.store, run_keys, record)
        taken.append((time.perf_counter() - began) * 1e3)
        assert rebuilt.text() == fold.text() + "y" * DELTA_CHARS * (options.tail - 2)
    read = sum([len(entry.chunks) async for entry in pages(links.store, run_keys, after=len(step))])
    assert read == options.tail, f"{read} chunks stand behind the snapshot"
    return median(taken)


async def _write(links: Links, run_keys: RunKeys, stream: list[Chunk], after: int) -> Fold:
    pipe = AppendPipe(links.store, writer_limits(links.settings))
    writer = RunWriter(pipe, run_keys, 1, after, _refused)
    for item in stream:
        await writer.append(chunks.encode(item), credited=True)
    await writer.flush()
    await pipe.aclose()
    return fold_all("m", stream)


def _refused(code: Code | None) -> None:
    raise AssertionError(f"an append was refused: {code}")
