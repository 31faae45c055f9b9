"""zombie: several processes go on appending to a run while it is taken from them again and again.

Each bump of the epoch is what a recovery does: the lease is ended, the run taken back, and claimed by another owner.
The zombies always know the next seq and try `hold` times under an epoch before they look again, so most of their
attempts are late. `accepted` counts chunks of an old epoch that stand in the stream behind the place where that epoch
ended; it must be 0. `appended` are the chunks that were in time.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack

from benchmarks.measure import Metrics, own_server, rounded, say
from benchmarks.programs import Program, started
from benchmarks.zombie_writer import ATTEMPTS_KEY
from runner import ids
from runner.bootstrap import make_sync_store
from runner.core.recovery.evaluate import Incident
from runner.settings import load_settings
from runner.store import calls, reads
from runner.store.answers import Code
from runner.store.call import Call
from runner.store.executor import SyncExecutor
from runner.store.keys import Keys, RunKeys
from runner.store.records import RunRecord

SMOKE = ["--attempts", "300", "--bumps", "5", "--zombies", "2"]
_REST_S = 0.004
_PAGE = 5_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Names the sizes."""
    parser.add_argument("--attempts", type=int, default=60_000, help="append attempts at least")
    parser.add_argument("--bumps", type=int, default=600, help="bumps of the epoch at least")
    parser.add_argument("--zombies", type=int, default=4, help="zombie processes")
    parser.add_argument("--hold", type=int, default=40, help="attempts under one epoch before a zombie looks again")


def run(options: argparse.Namespace) -> Metrics:
    """What was attempted, and what of it was accepted late."""
    with ExitStack() as stack:
        server = stack.enter_context(own_server())
        store, keys = make_sync_store(load_settings(redis_url=server.url)), Keys()
        stack.callback(store.close)
        run_keys = _claimed_run(store, keys)
        zombies = [
            stack.enter_context(started(server.url, "zombie-writer", run_keys.run_id, options.hold))
            for _ in range(options.zombies)
        ]
        for zombie in zombies:
            assert zombie.ask() == "ready"
        began = time.monotonic()
        ends = _bump(store, run_keys, options)
        attempts, fenced = _told(zombies)
        accepted, appended = _late(store, run_keys, ends)
        return rounded(
            {
                "attempts": attempts,
                "epoch_bumps": len(ends),
                "accepted": accepted,
                "appended": appended,
                "fenced": fenced,
                "attempts_per_s": attempts / (time.monotonic() - began),
            }
        )


def _claimed_run(store: SyncExecutor, keys: Keys) -> RunKeys:
    run_keys = keys.of_run(ids.new_run_id())
    store.run(calls.create(keys, run_keys, ("agent", "none", "message_id", "m"), dispatch_grace_ms=3_600_000))
    _claim(store, run_keys, 0)
    return run_keys


def _claim(store: SyncExecutor, run: RunKeys, epoch: int) -> RunRecord:
    claim = calls.claim(run, epoch, owner=f"owner-{epoch + 1}", token=str(epoch), lease_ms=3_600_000)
    record = store.run(claim).record
    assert record is not None
    return record


def _bump(store: SyncExecutor, run: RunKeys, options: argparse.Namespace) -> dict[int, int]:
    """Bumps the epoch until there were enough bumps and attempts. Returns where each epoch ended: its last seq."""
    ends: dict[int, int] = {}
    while len(ends) < options.bumps or _attempts(store) < options.attempts:
        record = store.run(reads.read_run(run))
        assert record is not None
        assert store.run(calls.expire_lease(run, owner=record.owner, cause="bench")) is Code.OK
        back = calls.take_back(record, run, Incident(), cause="bench", silent_ms=0, grace_ms=3_600_000)
        assert store.run(back) is Code.OK
        ended = store.run(reads.read_run(run))
        assert ended is not None
        ends[record.epoch] = ended.seq
        _claim(store, run, record.epoch)
        if len(ends) % 200 == 0:
            say(f"{len(ends)} bumps of the epoch, last seq {ended.seq:,}")
        time.sleep(_REST_S)
    return ends


def _attempts(store: SyncExecutor) -> int:
    """How many attempts the zombies have told of so far."""
    return store.run(Call("GET", lambda raw: int(raw or 0), (), (ATTEMPTS_KEY,), is_act=False))


def _told(zombies: list[Program]) -> tuple[int, int]:
    """All attempts, and how many of them were refused as late."""
    for zombie in zombies:
        zombie.terminate()
    answers = [[int(word) for word in zombie.ask().split()] for zombie in zombies]
    attempts, fenced = (sum(column) for column in zip(*answers, strict=True))
    return attempts, fenced


def _late(store: SyncExecutor, run: RunKeys, ends: dict[int, int]) -> tuple[int, int]:
    """How many chunks stand behind the end of their epoch, and how many there are at all."""
    late = stored = after = 0
    while True:
        entries = store.run(reads.read_stream(run, after=after, count=_PAGE))
        for entry in entries:
            stored += len(entry.chunks)
            late += len(entry.chunks) * (entry.last_seq > ends.get(entry.epoch, entry.last_seq))
        if len(entries) < _PAGE:
            return late, stored
        after = entries[-1].last_seq
