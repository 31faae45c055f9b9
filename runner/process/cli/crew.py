"""Which processes live: those that were heard of within one lease.

Rule of this file: age is told by the server's clock alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.engine.runtime import Links
from runner.store import reads
from runner.store.records import ProcessFacts


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers or the supervisors: those that live, and those that fell silent without a goodbye."""

    now_ms: int
    alive: tuple[ProcessFacts, ...]
    silent: tuple[ProcessFacts, ...]

    @property
    def running(self) -> int:
        """Turns that they run."""
        return sum(facts.running for facts in self.alive)

    @property
    def capacity(self) -> int:
        """Turns that they may run at a time."""
        return sum(facts.capacity for facts in self.alive)

    @property
    def free(self) -> int:
        """Turns that they could take now."""
        return self.capacity - self.running


async def read_workers(links: Links) -> Crew:
    """The workers of the configured queue. Raises a ServerError."""
    crew = await _read(links, links.keys.workers)
    queue = links.settings.queue
    return Crew(crew.now_ms, *(tuple(f for f in group if f.queue == queue) for group in (crew.alive, crew.silent)))


async def read_all_workers(links: Links) -> Crew:
    """The workers of every queue. Raises a ServerError."""
    return await _read(links, links.keys.workers)


async def read_supervisors(links: Links) -> Crew:
    """The supervisors. Raises a ServerError."""
    return await _read(links, links.keys.supervisors)


async def _read(links: Links, key: str) -> Crew:
    found = await links.store.run(reads.read_processes(key))
    now_ms = await links.store.run(reads.read_time())
    oldest_ms = now_ms - links.settings.lease_ms
    alive = tuple(facts for facts in found if facts.last_beat_ms >= oldest_ms)
    return Crew(now_ms, alive, tuple(facts for facts in found if facts.last_beat_ms < oldest_ms))
