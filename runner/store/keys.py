"""Every key: its name, type and lifetime. One owner per key is named in the act that writes it.

    <p>:{pp}:run:<id>            hash    the record                          TTL from the end
    <p>:{pp}:run:<id>:stream     stream  batches of chunks; terminal last    refreshed while alive, TTL from the end
    <p>:{pp}:run:<id>:snapshot   string  message so far and its seq          as the record
    <p>:{pp}:run:<id>:ledger     hash    memoised steps, stash               as the record
    <p>:{pp}:run:<id>:children   hash    tool call id -> child               as the record
    <p>:{pp}:run:<id>:events     stream  every transition, capped            as the record
    <p>:{pp}:due                 zset    run id by when it must be looked at for ever
    <p>:{pp}:owned:<process>     set     run ids that a process runs         gone when empty
    <p>:{pp}:sweep               hash    last sweep, end of the last outage  for ever
    <p>:{pp}:idem:<key>          string  run id and payload digest           RUNNER_IDEMPOTENCY_MS
    <p>:workers, <p>:supervisors hash    process id -> last beat and facts   entries removed when stale

Rule of this file: everything of one run shares the hash tag {pp}, so that one act touches one partition.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner import ids


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The keys of one run, and those of its partition that its acts touch."""

    run_id: str
    run: str
    stream: str
    snapshot: str
    ledger: str
    children: str
    events: str
    due: str
    sweep: str
    partition: int
    _owned_prefix: str

    def owned(self, process_id: str) -> str:
        """The set of runs that a process owns in this run's partition."""
        return self._owned_prefix + process_id


@dataclass(frozen=True, slots=True)
class Keys:
    """All key names under one prefix."""

    prefix: str = "tr"

    def of_run(self, run_id: str) -> RunKeys:
        """The keys of a run. InvalidInput for a text that is no run id."""
        partition = ids.partition_of_run(run_id)
        base = f"{self._tag(partition)}:run:{run_id}"
        return RunKeys(
            run_id=run_id,
            run=base,
            stream=f"{base}:stream",
            snapshot=f"{base}:snapshot",
            ledger=f"{base}:ledger",
            children=f"{base}:children",
            events=f"{base}:events",
            sweep=self.sweep(partition),
            due=self.due(partition),
            partition=partition,
            _owned_prefix=f"{self._tag(partition)}:owned:",
        )

    def due(self, partition: int) -> str:
        """The index of what must be looked at, by time."""
        return f"{self._tag(partition)}:due"

    def owned(self, partition: int, process_id: str) -> str:
        """The set of runs that a process owns in a partition."""
        return f"{self._tag(partition)}:owned:{process_id}"

    def sweep(self, partition: int) -> str:
        """When this partition was last swept."""
        return f"{self._tag(partition)}:sweep"

    def idempotency(self, partition: int, key: str) -> str:
        """What an idempotency key stands for."""
        return f"{self._tag(partition)}:idem:{key}"

    @property
    def workers(self) -> str:
        """The worker processes that live."""
        return f"{self.prefix}:workers"

    @property
    def supervisors(self) -> str:
        """The supervisors that live."""
        return f"{self.prefix}:supervisors"

    def _tag(self, partition: int) -> str:
        return f"{self.prefix}:{{{partition:02x}}}"
