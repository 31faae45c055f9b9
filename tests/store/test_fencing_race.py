"""Zombies against epoch bumps on a real server: nothing of an older epoch is stored after a takeover (I2)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from runner.core.recovery.evaluate import Incident
from runner.store import calls
from runner.store.answers import Code
from runner.store.executor import SyncExecutor
from runner.store.keys import Keys
from tests.support.store import LEASE_MS, OWNER, RUN_ID, Store, batch, claimed
from tests.support.waiting import until

ZOMBIES = 2
ENOUGH = 150


@dataclass
class Race:
    """What the zombies believe, and what became of their appends."""

    epoch: int = 1
    over: threading.Event = field(default_factory=threading.Event)
    accepted: list[int] = field(default_factory=lambda: [0] * ZOMBIES)
    fenced: list[int] = field(default_factory=lambda: [0] * ZOMBIES)

    def is_enough(self) -> bool:
        return min(self.accepted) >= ENOUGH and min(self.fenced) >= ENOUGH

    def run_zombie(self, number: int, url: str) -> None:
        """Appends under the epoch it last heard of, and asks for the new one only when it was refused."""
        executor = SyncExecutor(url)
        run, epoch, seq = Keys().of_run(RUN_ID), self.epoch, 0
        while not self.over.is_set():
            answer = executor.run(calls.append(run, epoch, batch(seq + 1, f"{number}")))
            seq = answer.seq
            if answer.code is Code.OK:
                self.accepted[number] += 1
            elif answer.code is Code.FENCED:
                self.fenced[number] += 1
                epoch = self.epoch
        executor.close()


def test_no_append_of_an_older_epoch_is_accepted(real: Store) -> None:
    run, race = claimed(real), Race()
    threads = [threading.Thread(target=race.run_zombie, args=(n, real.url)) for n in range(ZOMBIES)]
    for thread in threads:
        thread.start()
    begins = {1: 0}

    def bump() -> bool:
        epoch = race.epoch
        given = calls.give_back(run, epoch, owner=OWNER, incident=Incident(), why="", delay_ms=0)
        assert real.run(given) is Code.OK
        record = real.run(calls.claim(run, epoch, owner=OWNER, token=str(epoch), lease_ms=LEASE_MS)).record
        assert record is not None
        begins[record.epoch] = record.seq
        race.epoch = record.epoch
        return race.is_enough()

    try:
        until(bump, seconds=60, what="enough appends accepted and refused")
    finally:
        race.over.set()
        for thread in threads:
            thread.join()
    late = [
        (entry.epoch, entry.last_seq)
        for entry in real.entries(run)
        if not begins[entry.epoch] < entry.last_seq <= begins.get(entry.epoch + 1, entry.last_seq)
    ]
    assert late == []
    assert [entry.last_seq for entry in real.entries(run)] == list(range(1, len(real.entries(run)) + 1))
