"""Stores for tests: fakeredis and a real server behind one face, on a clock that stands until it is moved.

Rules of this file: both kinds run the product's own scripts and calls; only the prelude's clock is replaced, by one
that reads the key `NOW_KEY`. Lifetimes of keys and ids of `events` entries still follow the server's own clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import fakeredis
import redis
import redis.asyncio

from runner.core.transcript.chunk import encode, join
from runner.store import calls, reads
from runner.store.answers import Batch, Entry
from runner.store.call import Call, Script, script, script_with_clock
from runner.store.executor import AsyncExecutor, FindScript, SyncExecutor
from runner.store.keys import Keys, RunKeys
from runner.store.records import RunRecord

T = TypeVar("T")

KINDS = ("fake", "real")
FAKE_URL = "redis://fake:6379/0"

NOW_KEY = "test:now"
FIRST_NOW_MS = 1_000_000
_CLOCK = f"  return tonumber(redis.call('GET', '{NOW_KEY}') or '{FIRST_NOW_MS}')\n"

RUN_ID = f"00{'a' * 24}"
OTHER_RUN_ID = f"00{'b' * 24}"
OWNER = "worker-1"
MESSAGE_ID = "msg-1"
LEASE_MS = 5_000
RETENTION_MS = 60_000


def script_on_manual_clock(name: str) -> Script:
    """The act of that name, on the clock of `NOW_KEY`: the `find_script` of an executor."""
    return script_with_clock(name, _CLOCK)


@dataclass
class Store:
    """One empty store. `find_script` decides its clock; `now_ms` and `advance` move the manual one."""

    kind: str
    url: str
    client: redis.Redis
    fake_server: fakeredis.FakeServer | None = None
    find_script: FindScript = script_on_manual_clock
    keys: Keys = field(default_factory=Keys)

    def __post_init__(self) -> None:
        self.executor = SyncExecutor(self.url, client=self.client, find_script=self.find_script)

    def run(self, call: Call[T]) -> T:
        """The answer of one call, on the sync executor."""
        return self.executor.run(call)

    def async_executor(self) -> AsyncExecutor:
        """A new executor for the running event loop, on the same data; close it there."""
        client: redis.asyncio.Redis | None = None
        if self.fake_server is not None:
            client = fakeredis.FakeAsyncRedis(server=self.fake_server)
        return AsyncExecutor(self.url, client=client, find_script=self.find_script)

    @property
    def now_ms(self) -> int:
        """The manual clock."""
        return int(_bytes(self.client.get(NOW_KEY)) or FIRST_NOW_MS)

    def advance(self, by_ms: int) -> int:
        """Moves the manual clock on; its new time."""
        now = self.now_ms + by_ms
        self.client.set(NOW_KEY, now)
        return now

    def of(self, run_id: str = RUN_ID) -> RunKeys:
        """The keys of a run."""
        return self.keys.of_run(run_id)

    def record(self, run: RunKeys) -> RunRecord:
        """The record of a run that must be there."""
        record = self.run(reads.read_run(run))
        assert record is not None, f"no record of {run.run_id}"
        return record

    def fields(self, run: RunKeys) -> dict[str, str]:
        """The raw hash of a run."""
        raw: Any = self.client.hgetall(run.run)
        return {key.decode(): value.decode() for key, value in raw.items()}

    def entries(self, run: RunKeys, after: int = 0) -> list[Entry]:
        """What its stream holds behind a cursor."""
        return self.run(reads.read_stream(run, after=after, count=1_000))

    def entry_ids(self, run: RunKeys) -> list[str]:
        """The raw ids of its stream."""
        raw: Any = self.client.xrange(run.stream)
        return [entry_id.decode() for entry_id, _ in raw]

    def due_at(self, run: RunKeys) -> int | None:
        """When it must be looked at next; None when the index does not hold it."""
        raw: Any = self.client.zscore(run.due, run.run_id)
        return None if raw is None else int(raw)

    def ttl_ms(self, key: str) -> int:
        """-1 for a key without a lifetime, -2 for no key."""
        raw: Any = self.client.pttl(key)
        return int(raw)

    def contents(self) -> dict[str, Any]:
        """Every key and what it holds, to show that an act changed nothing."""
        names: Any = self.client.keys("*")
        return {name.decode(): self._content(name) for name in sorted(names)}

    def _content(self, name: bytes) -> Any:
        raw: Any = self.client.type(name)
        kind: str = raw.decode()
        match kind:
            case "string":
                return self.client.get(name)
            case "hash":
                return self.client.hgetall(name)
            case "set":
                return self.client.smembers(name)
            case "zset":
                return self.client.zrange(name, 0, -1, withscores=True)
            case "stream":
                return self.client.xrange(name)
            case _:
                raise AssertionError(f"{name!r} is a {kind}, which no act writes")


@contextmanager
def fake_store(find_script: FindScript = script_on_manual_clock) -> Iterator[Store]:
    """An empty store in this process."""
    server = fakeredis.FakeServer()
    with fakeredis.FakeRedis(server=server) as client:
        yield Store("fake", FAKE_URL, client, server, find_script)


@contextmanager
def real_store(url: str, find_script: FindScript = script_on_manual_clock) -> Iterator[Store]:
    """The real server at `url`, emptied first."""
    with redis.Redis.from_url(url, protocol=2) as client:
        client.flushall()
        yield Store("real", url, client, find_script=find_script)


@contextmanager
def real_clock(store: Store) -> Iterator[Store]:
    """The same data, with the product's own scripts: the clock is the server's TIME."""
    yield Store(store.kind, store.url, store.client, store.fake_server, script)


# Runs in the states that a test starts from


def created(store: Store, run_id: str = RUN_ID, **fields: str | int) -> RunKeys:
    """A queued run."""
    run = store.of(run_id)
    values: dict[str, str | int] = {"run_id": run_id, "agent": "echo", "message_id": MESSAGE_ID, **fields}
    words = tuple(word for pair in values.items() for word in pair)
    store.run(calls.create(store.keys, run, words, dispatch_grace_ms=2_000))
    return run


def claimed(store: Store, run_id: str = RUN_ID, *, owner: str = OWNER, **fields: str | int) -> RunKeys:
    """A running run, epoch 1."""
    run = created(store, run_id, **fields)
    answer = store.run(calls.claim(run, 0, owner=owner, token=f"{owner}/1", lease_ms=LEASE_MS))
    assert answer.record is not None
    return run


def batch(first_seq: int, *texts: str, credited: int | None = None) -> Batch:
    """One text-delta for each text; every one is credited unless told otherwise."""
    encoded = [encode({"type": "text-delta", "id": "t", "delta": text}) for text in texts]
    counted = len(texts) if credited is None else credited
    return Batch(first_seq, first_seq + len(texts) - 1, join(encoded), counted)


def texts(entries: list[Entry]) -> list[str]:
    """The deltas of these entries, in order."""
    return [chunk["delta"] for entry in entries for chunk in entry.chunks]


def as_json(value: Any) -> bytes:
    """JSON as a caller would hand it in."""
    return json.dumps(value, separators=(",", ":")).encode()


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None
