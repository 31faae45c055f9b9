"""append: chunks stored per second, through our writer and at the raw limit of the same client and server.

Compared in alternating rounds, one process, redis.asyncio on both sides, 200-byte chunks:
  ours  `RunWriter` and `AppendPipe` on claimed runs: every batch is fenced, checked for its seq, and credited
  raw   plain XADD, one chunk each, 64 to a pipeline: neither fenced nor recognised when repeated
With 1 producer and with 50. `ratio_*` is ours / raw of the medians; above 1 we are faster, because in a flood our
chunks share entries (64 to a batch, 4 batches to a trip at most). `ratio_batched_1` is ours to plain XADDs of the same
batches, four to a pipeline: the price of the fence and the bookkeeping. `ack_p50_us` is one chunk from `append` to its
acknowledgement with nothing else going on. After each round, what is stored is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from benchmarks.measure import Metrics, median, own_server, rounded, say
from benchmarks.runs import claim_runs, record_runs
from runner.bootstrap import make_links
from runner.core.transcript.chunk import encode, join
from runner.engine.runtime import Links, writer_limits
from runner.engine.writer import BATCHES_PER_TRIP, AppendPipe, RunWriter
from runner.settings import load_settings
from runner.store import reads
from runner.store.answers import Code

SMOKE = ["--rounds", "1", "--seconds", "0.1"]
DEPTH = 64
CHUNK_BYTES = 200


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a round")


def run(options: argparse.Namespace) -> Metrics:
    """Chunks per second of both sides, and their ratio."""
    with own_server() as server:
        return asyncio.run(_run(server.url, options.rounds, options.seconds))


async def _run(url: str, rounds: int, seconds: float) -> Metrics:
    links = make_links(load_settings(redis_url=url))
    metrics: dict[str, int | float] = {}
    try:
        await _ours(links, 1, 0.05)
        await _raw(links, 1, 0.05)
        batched = []
        for producers in (1, 50):
            ours, raw = [], []
            for number in range(rounds):
                ours.append(await _ours(links, producers, seconds))
                raw.append(await _raw(links, producers, seconds))
                if producers == 1:
                    batched.append(await _raw(links, 1, seconds, chunks_each=64, depth=BATCHES_PER_TRIP))
                say(f"round {number + 1}, {producers} producers: ours {ours[-1]:,.0f}/s, raw {raw[-1]:,.0f}/s")
            metrics[f"ratio_{producers}"] = median(ours) / median(raw)
            metrics[f"chunks_per_s_{producers}"] = round(median(ours))
            metrics[f"raw_chunks_per_s_{producers}"] = round(median(raw))
        metrics["ratio_batched_1"] = metrics["chunks_per_s_1"] / median(batched)
        metrics["ack_p50_us"] = await _ack_us(links, max(20, int(seconds * 1_000)))
    finally:
        links.dispatcher.close()
        await links.store.aclose()
    return rounded(metrics)


def _chunk() -> bytes:
    empty = len(encode({"type": "text-delta", "id": "t1-1", "delta": ""}))
    return encode({"type": "text-delta", "id": "t1-1", "delta": "x" * (CHUNK_BYTES - empty)})


async def _writers(links: Links, producers: int) -> tuple[AppendPipe, list[RunWriter]]:
    runs = await record_runs(links.store, links.keys, producers)
    await claim_runs(links.store, runs)
    pipe = AppendPipe(links.store, writer_limits(links.settings))
    return pipe, [RunWriter(pipe, run, 1, 0, _refused) for run in runs]


def _refused(code: Code | None) -> None:
    raise AssertionError(f"an append was refused: {code}")


async def _ours(links: Links, producers: int, seconds: float) -> float:
    await links.store.client.flushall()
    pipe, writers = await _writers(links, producers)
    chunk = _chunk()

    async def produce(writer: RunWriter, until: float) -> int:
        while time.perf_counter() < until:
            for _ in range(DEPTH):
                await writer.append(chunk, credited=True)
            await asyncio.sleep(0)  # a producer lets others run, as the raw one does when it awaits its pipeline
        await writer.flush()
        return writer.last_seq

    began = time.perf_counter()
    counts = await asyncio.gather(*(produce(writer, began + seconds) for writer in writers))
    rate = sum(counts) / (time.perf_counter() - began)
    await pipe.aclose()
    for writer, count in zip(writers, counts, strict=True):
        record = await links.store.run(reads.read_run(writer.run))
        assert record is not None
        assert record.seq == record.progress == count, f"{count} chunks were acknowledged, {record.seq} are stored"
    return rate


async def _raw(links: Links, producers: int, seconds: float, *, chunks_each: int = 1, depth: int = DEPTH) -> float:
    client = links.store.client
    await client.flushall()
    body = _chunk() if chunks_each == 1 else join([_chunk()] * chunks_each)

    async def produce(name: str, until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            pipe = client.pipeline(transaction=False)
            for _ in range(depth):
                pipe.xadd(name, {"c": body})
            await pipe.execute()
            count += depth * chunks_each
        return count

    began = time.perf_counter()
    counts = await asyncio.gather(*(produce(f"raw:{n}", began + seconds) for n in range(producers)))
    return sum(counts) / (time.perf_counter() - began)


async def _ack_us(links: Links, count: int) -> float:
    pipe, (writer,) = await _writers(links, 1)
    chunk, taken = _chunk(), []
    for _ in range(count):
        began = time.perf_counter()
        await writer.append(chunk, credited=True)
        await writer.flush()
        taken.append((time.perf_counter() - began) * 1e6)
    await pipe.aclose()
    return median(taken)
