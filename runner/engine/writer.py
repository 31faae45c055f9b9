"""The append path: chunks of all turns of a process, in order, through one pipeline per loop tick.

Rules of this file: a turn's chunks are sent at once when nothing of it is in flight, otherwise they collect and go with
the reply; a batch keeps its seqs when it is sent again, so a lost reply stores nothing twice; a full buffer makes the
turn wait; a refused append ends the turn's writing for good.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from runner.core.transcript import chunk as chunks
from runner.engine.stopping import stop
from runner.errors import AttemptLost, RunnerError, ServerRefused, StreamGap
from runner.store import calls
from runner.store.answers import Answer, Batch, Code
from runner.store.executor import AsyncExecutor
from runner.store.keys import RunKeys

BATCHES_PER_TRIP = 4
"""How many batches of one turn may share a trip."""


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Sizes of the append path; named as in `Settings`."""

    batch_chunks: int = 64
    batch_bytes: int = 262_144
    buffer_bytes: int = 1_048_576
    window_ms: int = 0


class RunWriter:
    """Writes the chunks of one attempt. `on_refused` is called once when no more can be written:
    with the code that says what became of the attempt, or None when the trouble is the server's."""

    def __init__(
        self, pipe: AppendPipe, run: RunKeys, epoch: int, last_seq: int, on_refused: Callable[[Code | None], None]
    ) -> None:
        self.run, self.epoch = run, epoch
        self.last_seq = last_seq
        self.failure: RunnerError | None = None
        self._pipe, self._on_refused = pipe, on_refused
        self._sent_seq = self._acked_seq = last_seq
        self._buffer: deque[bytes] = deque()
        self._credited: deque[bool] = deque()
        self._bytes = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._offered = False

    async def append(self, encoded: bytes, *, credited: bool) -> int:
        """Takes one encoded chunk; returns its seq. Waits only while the buffer is full. Raises AttemptLost."""
        if self.failure is not None:
            raise self.failure
        self._buffer.append(encoded)
        self._credited.append(credited)
        self._bytes += len(encoded)
        self.last_seq += 1
        if not self._offered:
            self._offered = True
            self._pipe.offer(self)
        seq = self.last_seq
        if self._bytes > self._pipe.limits.buffer_bytes:
            await self._acknowledged(max(self._sent_seq, self._acked_seq + 1))
        return seq

    async def flush(self) -> None:
        """Returns when every chunk taken so far is stored. Raises AttemptLost, StreamGap or ServerRefused."""
        if self.failure is not None:
            raise self.failure
        if self._acked_seq < self.last_seq:
            await self._acknowledged(self.last_seq)

    def take(self) -> list[Batch]:
        """The next batches to send."""
        batches: list[Batch] = []
        while self._buffer and len(batches) < BATCHES_PER_TRIP:
            batches.append(self._next_batch())
        return batches

    def acknowledge(self, answer: Answer) -> None:
        """Takes the server's answer to one batch."""
        if self.failure is not None:
            return
        match answer.code:
            case Code.OK:
                self._acked_seq = max(self._acked_seq, answer.seq)
                self._wake()
            case Code.GAP:
                self.fail(StreamGap(self.run.run_id, self._acked_seq, answer.seq))
                self._on_refused(None)
            case _:
                self.fail(AttemptLost(self.run.run_id, self.epoch, answer.code.name.lower()))
                self._on_refused(answer.code)

    def refuse(self, why: RunnerError) -> None:
        """The server would not take a batch, for a reason that says nothing of the attempt."""
        self.fail(why)
        self._on_refused(None)

    def sent(self) -> None:
        """Everything taken has been answered: what collected meanwhile may go."""
        if self._buffer and self.failure is None:
            self._pipe.offer(self)
        else:
            self._offered = False

    def fail(self, why: RunnerError) -> None:
        """Ends the writing: whoever waits is told why, and what was not stored is dropped."""
        self.failure = why
        self._buffer.clear()
        self._credited.clear()
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(why)

    def _next_batch(self) -> Batch:
        limits = self._pipe.limits
        size = credited = 0
        taken: list[bytes] = []
        while self._buffer and len(taken) < limits.batch_chunks:
            if taken and size + len(self._buffer[0]) > limits.batch_bytes:
                break
            encoded = self._buffer.popleft()
            size += len(encoded)
            credited += self._credited.popleft()
            taken.append(encoded)
        self._bytes -= size
        first = self._sent_seq + 1
        self._sent_seq += len(taken)
        return Batch(first, self._sent_seq, chunks.join(taken), credited)

    async def _acknowledged(self, seq: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((seq, future))
        await future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for seq, future in waiting:
            if seq > self._acked_seq:
                self._waiting.append((seq, future))
            elif not future.done():
                future.set_result(None)


class AppendPipe:
    """Sends what the writers of one event loop have, one pipeline at a time."""

    def __init__(self, store: AsyncExecutor, limits: WriterLimits) -> None:
        self.limits = limits
        self._store = store
        self._ready: list[RunWriter] = []
        self._wake: asyncio.Event | None = None
        self._sending: asyncio.Task[None] | None = None

    def offer(self, writer: RunWriter) -> None:
        """Says that a writer has something to send."""
        self._ready.append(writer)
        if self._sending is None or self._sending.done():
            self._wake = asyncio.Event()
            self._sending = asyncio.get_running_loop().create_task(self._send_forever(self._wake))
        assert self._wake is not None
        self._wake.set()

    async def aclose(self) -> None:
        """Stops sending. What is in flight may or may not be stored."""
        await stop(self._sending)
        self._sending = None

    async def _send_forever(self, wake: asyncio.Event) -> None:
        while True:
            await wake.wait()
            wake.clear()
            if self.limits.window_ms:
                await asyncio.sleep(self.limits.window_ms / 1_000)
            ready, self._ready = self._ready, []
            await self._send(ready)

    async def _send(self, ready: list[RunWriter]) -> None:
        trip = [(writer, batch) for writer in ready if writer.failure is None for batch in writer.take()]
        if trip:
            appends = [calls.append(writer.run, writer.epoch, batch) for writer, batch in trip]
            try:
                answers = await self._store.run_many(appends)
            except ServerRefused:
                await self._send_one_by_one(trip)
            except Exception as why:  # noqa: BLE001 - a sender that died would leave every turn waiting
                for writer, _ in trip:
                    writer.refuse(why if isinstance(why, RunnerError) else ServerRefused("append", repr(why)))
            else:
                for (writer, _), answer in zip(trip, answers, strict=True):
                    writer.acknowledge(answer)
        for writer in ready:
            writer.sent()

    async def _send_one_by_one(self, trip: list[tuple[RunWriter, Batch]]) -> None:
        """Finds out whose append the server refused, so that the others go on."""
        for writer, batch in trip:
            if writer.failure is not None:
                continue
            try:
                writer.acknowledge(await self._store.run(calls.append(writer.run, writer.epoch, batch)))
            except RunnerError as why:
                writer.refuse(why)
