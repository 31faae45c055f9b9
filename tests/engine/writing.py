"""A writer on a line that a test can read and hold: the engine's own append path over a simulated server."""

from __future__ import annotations

from dataclasses import dataclass, field

from runner.core.transcript.chunk import encode
from runner.engine.writer import AppendPipe, RunWriter, WriterLimits
from runner.store.answers import Code
from runner.store.keys import RunKeys
from tests.simulation.scenarios import world_of
from tests.support.faults import Line, Plan
from tests.support.simulation import Process, World
from tests.support.store import OTHER_RUN_ID, RUN_ID, claimed


@dataclass
class Desk:
    """One process with one pipe, and the writers of two claimed runs."""

    limits: WriterLimits = field(default_factory=WriterLimits)
    plan: Plan | None = None
    world: World = field(init=False)
    told: list[Code | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = world_of()
        self.process: Process = self.world.process("writer", self.plan)
        self.pipe = AppendPipe(self.process.store, self.limits)
        self.run, self.other_run = claimed(self.world.store), claimed(self.world.store, OTHER_RUN_ID)

    @property
    def line(self) -> Line:
        return self.process.line

    def writer(self, run: RunKeys | None = None) -> RunWriter:
        """A writer of the first attempt of that run."""
        return RunWriter(self.pipe, run or self.run, 1, 0, self.told.append)

    def batches(self, run: RunKeys | None = None) -> list[list[str]]:
        """What the stream holds: the deltas of each entry."""
        entries = self.world.store.entries(run or self.run)
        return [[chunk["delta"] for chunk in entry.chunks] for entry in entries]

    def texts(self) -> list[str]:
        """What the stream holds, in order."""
        return [text for batch in self.batches() for text in batch]

    async def aclose(self) -> None:
        await self.pipe.aclose()
        await self.world.aclose()


def delta(text: str) -> bytes:
    """One encoded chunk."""
    return encode({"type": "text-delta", "id": "t", "delta": text})


async def put(writer: RunWriter, *texts: str) -> None:
    """Appends one chunk for each text."""
    for text in texts:
        await writer.append(delta(text), credited=True)


__all__ = ["OTHER_RUN_ID", "RUN_ID", "Desk", "delta", "put"]
