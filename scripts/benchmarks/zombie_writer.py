"""A zombie: a process that goes on appending under an epoch that may have been taken from it.

Rule of this file: it is the worst zombie there can be. It always knows the next seq, so that only its epoch is wrong,
and it goes on for a while after it was refused.
"""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

from runner.bootstrap import make_sync_store
from runner.core.transcript.chunk import encode, join
from runner.settings import Settings
from runner.store import calls, reads
from runner.store.answers import Batch, Code
from runner.store.call import Call
from runner.store.keys import Keys

ATTEMPTS_KEY = "bench:attempts"
"""Where all zombies count together."""


def write(settings: Settings, run_id: str, *, hold: int) -> int:
    """Appends until SIGTERM, `hold` times under each epoch it learns of; then says the attempts, and those FENCED."""
    told: list[int] = []

    def stop(number: int, _: Any) -> None:
        told.append(number)

    signal.signal(signal.SIGTERM, stop)
    store, run = make_sync_store(settings), Keys(settings.key_prefix).of_run(run_id)
    body = join([encode({"type": "text-delta", "id": "t1-1", "delta": "zombie"})])
    codes: Counter[Code] = Counter()
    print("ready", flush=True)
    while not told:
        record = store.run(reads.read_run(run))
        assert record is not None
        seq = record.seq
        for _ in range(hold):
            answer = store.run(calls.append(run, record.epoch, Batch(seq + 1, seq + 1, body, 1)))
            codes[answer.code] += 1
            seq = answer.seq
        store.run(Call("INCRBY", int, (hold,), (ATTEMPTS_KEY,), is_act=False))
    store.close()
    print(codes.total(), codes[Code.FENCED], flush=True)
    return 0
