"""Real worker pools and supervisors on a real server, and readers that watch what comes of killing them.

Rules of this file: every process is started here, carries the mark of its fleet in its environment, and is killed by
its pid when the test ends, however it ends; what a process logged is shown when the test fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import redis
from rq import Worker
from rq.worker.base import BaseWorker

from runner.client import Runner
from runner.dispatch import Dispatcher, Ticket
from runner.engine.tailing import TailItem
from runner.settings import load_settings
from runner.store import reads
from runner.store.executor import SyncExecutor
from runner.store.keys import Keys
from runner.store.records import ProcessFacts, RunRecord, Terminal
from tests.support.server import TestServer, fresh_server
from tests.support.waiting import until, until_async

ROOT = Path(__file__).resolve().parents[2]
MARK = "TEST_FLEET"
DEFAULTS: dict[str, Any] = {"agents": "tests.support.turns:agents", "sweep_ms": 50, "beat_ms": 400}
SHORT_LEASE: dict[str, Any] = {"lease_ms": 1_500, "beat_ms": 300}
"""For tests that must wait for the end of a lease."""

_START = """
import os, sys
from runner.process.lifeline import end_with_parent
end_with_parent(os.getppid())
from runner.settings import load_settings
from runner.telemetry import set_up_logging
set_up_logging(as_json=True)
"""
_POOL = f"""{_START}
from runner.process.worker.pool import run_pool
sys.exit(run_pool(load_settings(), processes=int(sys.argv[1]), isolate=sys.argv[2] == "isolate"))
"""
_SUPERVISOR = f"""{_START}
from runner.process.supervisor import run_supervisor
sys.exit(run_supervisor(load_settings()))
"""


def only_child_of(pid: int, other_than: int = 0) -> psutil.Process:
    """The only child of a process, once it is there and has another pid than `other_than`."""

    def children() -> list[psutil.Process]:
        return [child for child in psutil.Process(pid).children() if child.pid != other_than]

    (child,) = until(children, what="a child process")
    return child


class Program:
    """One started program: a pool with its processes, or a supervisor."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log
        self._parent = psutil.Process(process.pid)

    @property
    def pid(self) -> int:
        """The parent's."""
        return self.process.pid

    def children(self) -> list[psutil.Process]:
        """The worker processes that the parent has now."""
        with suppress(psutil.NoSuchProcess):
            return self._parent.children()
        return []

    def one_child(self, other_than: int = 0) -> psutil.Process:
        """The only worker process, once it is there and has another pid than `other_than`."""
        return only_child_of(self.pid, other_than)

    def kill_all(self) -> None:
        """SIGKILL of the parent and of all that it started, as when their host is lost."""
        everyone = [self._parent, *self._parent.children(recursive=True)]
        for process in everyone:
            process.suspend()
        for process in everyone:
            process.kill()

    def terminate(self) -> None:
        """SIGTERM of the parent."""
        os.kill(self.pid, signal.SIGTERM)

    def exit_code(self, seconds: float = 15) -> int:
        """Of the parent, once it has ended."""
        return self.process.wait(seconds)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The events of that name in its log, in order."""
        lines = self.log.read_text(errors="replace").splitlines()
        events: list[dict[str, Any]] = [
            json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")
        ]
        return [fields for fields in events if fields.get("event") == event]


class Fleet:
    """All programs of one test. `settings` are fields of `Settings`, for every program and for the runner."""

    def __init__(self, server: TestServer, **settings: Any) -> None:
        self.server = server
        self.settings = {**DEFAULTS, **settings}
        self.redis: redis.Redis = redis.Redis.from_url(server.url, protocol=2)
        self.dir = Path(tempfile.mkdtemp(prefix="fleet-"))
        """For files that turns write."""
        self._mark = uuid.uuid4().hex
        self._programs: list[Program] = []
        self._store = SyncExecutor(server.url)
        self.dispatcher = Dispatcher(redis.Redis.from_url(server.url, protocol=2), "turns")
        self._workers_key = Keys().workers

    def start_pool(
        self,
        processes: int = 1,
        *,
        isolate: bool = False,
        ready: bool = True,
        environment: dict[str, str] | None = None,
        **settings: Any,
    ) -> Program:
        """A pool; with `ready`, once every process of it is in RQ's list of workers."""
        before = self._in_rq()
        kind = "isolate" if isolate else "shared"
        pool = self._start(_POOL, str(processes), kind, settings=settings, environment=environment)
        if ready:
            until(lambda: len(self._in_rq() - before) >= processes or pool.has_ended, 20, "the pool's processes")
        return pool

    def start_supervisor(self, *, ready: bool = True, **settings: Any) -> Program:
        """A supervisor; with `ready`, once it beats."""
        before = len(self._store.run(reads.read_processes(Keys().supervisors)))
        program = self._start(_SUPERVISOR, settings=settings)
        if ready:
            until(lambda: len(self._store.run(reads.read_processes(Keys().supervisors))) > before, 20, "supervisor")
        return program

    def workers(self) -> list[ProcessFacts]:
        """The worker processes that say that they live."""
        return self._store.run(reads.read_processes(self._workers_key))

    def owner(self, record: RunRecord) -> psutil.Process:
        """The process that runs a run."""
        (pid,) = [facts.pid for facts in self.workers() if facts.id == record.owner]
        return psutil.Process(pid)

    def in_rq(self) -> list[BaseWorker]:
        """RQ's own view of the workers."""
        return Worker.all(connection=self.redis)

    def pops(self) -> bool:
        """Whether a worker waits for a job right now, in a blocking pop."""
        clients: Any = self.redis.client_list()
        return any(client["cmd"] == "blmove" and "b" in client["flags"] for client in clients)

    def push_job(self, run_id: str, epoch: int) -> None:
        """A job that a dispatcher could have made, whether there is such a run or not."""
        self.dispatcher.enqueue([Ticket(run_id, epoch)])

    def environment(self, **settings: Any) -> dict[str, str]:
        """What a program of the fleet is started with."""
        fields = {**self.settings, "redis_url": self.server.url, **settings}
        named = {f"RUNNER_{name.upper()}": str(value) for name, value in fields.items()}
        return {**os.environ, "PYTHONPATH": str(ROOT), MARK: self._mark, **named}

    def processes(self) -> list[psutil.Process]:
        """Every living process of the fleet, orphans included."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def play(self, story: Callable[[Fleet, Runner], Coroutine[Any, Any, None]]) -> None:
        """Runs a test's story with a runner; what failed carries the logs of all programs."""

        async def told() -> None:
            async with Runner(load_settings(redis_url=self.server.url, **self.settings)) as runner:
                await story(self, runner)

        try:
            asyncio.run(told())
        except BaseException as failure:
            for program in self._programs:
                failure.add_note(f"--- {program.log.name}\n{program.log.read_text(errors='replace')[-8_000:]}")
            raise

    def close(self) -> None:
        """Kills what is left."""
        for program in self._programs:
            program.process.kill()
        for _ in range(10):
            left = self.processes()
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            for program in self._programs:
                program.process.wait(10)
            if not left:
                break
        self.redis.close()
        self.dispatcher.close()
        self._store.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def _in_rq(self) -> set[bytes]:
        members: Any = self.redis.smembers("rq:workers")
        return set(members)

    def _start(
        self, script: str, *args: str, settings: dict[str, Any], environment: dict[str, str] | None = None
    ) -> Program:
        log = self.dir / f"{len(self._programs)}-{'pool' if args else 'supervisor'}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", script, *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**self.environment(**settings), **(environment or {})},
            )
        program = Program(process, log)
        self._programs.append(program)
        return program

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            return process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE
        return False


@contextmanager
def fresh_fleet(*, tcp: bool = False, **settings: Any) -> Iterator[Fleet]:
    """A fleet on a fresh server of its own."""
    with fresh_server(tcp=tcp) as server:
        fleet = Fleet(server, **settings)
        try:
            yield fleet
        finally:
            fleet.close()


def play(story: Callable[[Fleet, Runner], Coroutine[Any, Any, None]], *, tcp: bool = False, **settings: Any) -> None:
    """Runs a story on a fresh fleet."""
    with fresh_fleet(tcp=tcp, **settings) as fleet:
        fleet.play(story)


class Reading:
    """A reader of one run, in the background from the first chunk on. Make it inside a running event loop."""

    def __init__(self, runner: Runner, run_id: str) -> None:
        self.runner, self.run_id = runner, run_id
        self.items: list[TailItem] = []
        self._work = asyncio.create_task(self._read())

    @property
    def text(self) -> str:
        """All text seen so far."""
        return text_of(self.items)

    async def record(self) -> RunRecord:
        """The run as it is now."""
        return (await self.runner.get(self.run_id)).record

    async def until_words(self, count: int, seconds: float = 20) -> None:
        """Returns when that many words were seen."""

        async def seen() -> bool:
            assert not self._work.done() or self._work.exception() is None, self._work.exception()
            return len(self.text.split()) >= count

        await until_async(seen, seconds, f"{count} words of {self.run_id} (seen: {self.text[-80:]!r})")

    async def ended(self, seconds: float = 30) -> Terminal:
        """The terminal, once everything was seen: each seq once and in order, one terminal, last; a second reader
        sees exactly the same (I1, I3, I17)."""
        async with asyncio.timeout(seconds):
            await self._work
        check_whole(self.items)
        replay = [item async for item in self.runner.tail(self.run_id)]
        assert replay == self.items
        assert (await self.runner.get(self.run_id)).message["parts"] is not None
        terminal = self.items[-1].terminal
        assert terminal is not None
        return terminal

    async def ended_as(self, state: str, reason: str = "finished", seconds: float = 30) -> RunRecord:
        """The record of a run that ended so."""
        terminal = await self.ended(seconds)
        record = await self.record()
        assert (record.state, record.reason) == (terminal.state, terminal.reason)
        assert (terminal.state, terminal.reason) == (state, reason), (
            f"{terminal} {await self.runner.explain(self.run_id)}"
        )
        return record

    async def counted(self, to: int, seconds: float = 30) -> RunRecord:
        """The record of a `counter` run that completed: every number once, in order."""
        record = await self.ended_as("completed", seconds=seconds)
        assert self.text.split() == [str(number) for number in range(to)]
        return record

    async def _read(self) -> None:
        async for item in self.runner.tail(self.run_id):
            self.items.append(item)


def check_whole(items: list[TailItem]) -> None:
    """Each seq once and in order, and exactly one terminal, at the end."""
    chunks = [item for item in items if item.chunk is not None]
    assert [item.seq for item in chunks] == list(range(1, len(chunks) + 1))
    assert [item.terminal is not None for item in items] == [False] * len(chunks) + [True]
    epochs = [item.epoch for item in chunks]
    assert epochs == sorted(epochs), "an older attempt wrote after a newer one"


def text_of(items: list[TailItem]) -> str:
    """The text deltas, joined."""
    return "".join(i.chunk["delta"] for i in items if i.chunk is not None and i.chunk["type"] == "text-delta")


async def start(runner: Runner, agent: str, message: str | None = None, **options: Any) -> Reading:
    """Submits a run and reads it from its start."""
    return Reading(runner, (await runner.submit(agent, message, **options)).run_id)


async def whats(runner: Runner, run_id: str) -> list[str]:
    """The names of a run's transitions, in order."""
    return [event["what"] for event in await runner.explain(run_id)]


async def detail(runner: Runner, run_id: str, what: str) -> str:
    """The detail of the last transition of that name."""
    return [event["detail"] for event in await runner.explain(run_id) if event["what"] == what][-1]
