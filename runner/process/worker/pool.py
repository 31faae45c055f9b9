"""The pool: a parent that keeps worker processes alive and says at once when one is gone.

Rules of this file: the parent runs no turns and no threads, so that it can fork; signals are taken from a queue,
never in a handler; a process that died has its leases ended before its successor starts; when the parent dies, its
processes see the pipe close and hand their turns over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from runner import ids
from runner.bootstrap import check_store, load_agents, make_sync_store
from runner.errors import RunnerError
from runner.process.worker.child import run_child
from runner.settings import Settings
from runner.store import calls, reads
from runner.store.keys import Keys
from runner.telemetry import log

_log = log("pool")

_SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
STOP_S = 10.0
"""How long processes may take to hand over before they are killed."""
SHORT_LIFE_S = 2.0
"""A process that lived for less is replaced with a growing delay."""
LONGEST_RESPAWN_S = 30.0


@dataclass(slots=True)
class Member:
    """One place in the pool and the process that fills it."""

    process_id: str = ""
    pid: int = 0
    born_s: float = 0.0
    short_lives: int = 0
    due_s: float = 0.0


def run_pool(settings: Settings, *, processes: int, isolate: bool = False) -> int:
    """Runs worker processes until SIGTERM or SIGINT; returns the exit code.

    Raises ServerError or InvalidInput when they could not work at all.
    """
    agents = load_agents(settings.agents)
    asyncio.run(check_store(settings))
    return Pool(settings, processes, lambda name: run_child(settings, agents, name, isolate=isolate)).run()


class Pool:
    """The parent. `work` is what a process does, given its process id; its result is the exit code. `memory_events`
    is where the kernel counts what it killed for memory."""

    def __init__(
        self,
        settings: Settings,
        processes: int,
        work: Callable[[str], int],
        *,
        memory_events: Path = Path("/sys/fs/cgroup/memory.events"),
    ) -> None:
        self._memory_events = memory_events
        self._settings, self._work = settings, work
        self._members = [Member() for _ in range(processes)]
        self._alive_read, self._alive_write = os.pipe()
        self._stopping = False
        self._stop_by_s = 0.0
        self._out_of_memory_kills = _out_of_memory_kills(memory_events)

    def run(self) -> int:
        """Keeps the members alive until told to stop."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            for member in self._members:
                self._spawn(member)
            while not (self._stopping and not any(member.pid for member in self._members)):
                self._take_signal()
                self._reap()
                self._respawn_due()
                self._kill_the_late()
        finally:
            os.close(self._alive_write)
            os.close(self._alive_read)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return 0

    def _take_signal(self) -> None:
        taken = signal.sigtimedwait(_SIGNALS, self._patience_s())
        if taken is None or taken.si_signo == signal.SIGCHLD or self._stopping:
            return
        _log.info("pool.stopping", processes=len(self._members))
        self._stopping = True
        self._stop_by_s = time.monotonic() + STOP_S
        for member in self._members:
            if member.pid:
                os.kill(member.pid, signal.SIGTERM)

    def _patience_s(self) -> float:
        dues = [member.due_s for member in self._members if not member.pid and not self._stopping]
        dues += [self._stop_by_s] if self._stopping else []
        return max(0.0, min([1.0, *(due - time.monotonic() for due in dues)]))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for member in self._members:
                if member.pid == pid:
                    self._bury(member, status)

    def _bury(self, member: Member, status: int) -> None:
        cause = self._cause(status)
        lived_s = time.monotonic() - member.born_s
        _log.info(
            "pool.process-ended", process_id=member.process_id, cause=cause or "exit 0", lived_s=round(lived_s, 1)
        )
        if cause or not self._stopping:  # a turn can end its process with code 0, too
            self._end_leases(member.process_id, cause or "exit code 0")
        member.pid = 0
        member.short_lives = member.short_lives + 1 if cause and lived_s < SHORT_LIFE_S else 0
        delay_s = min(LONGEST_RESPAWN_S, 0.1 * 2**member.short_lives) if member.short_lives > 1 else 0.0
        member.due_s = time.monotonic() + delay_s

    def _end_leases(self, process_id: str, cause: str) -> None:
        """Ends the leases of every turn that the process ran, so that they need not run out."""
        keys = Keys(self._settings.key_prefix)
        store = make_sync_store(self._settings, retries=self._settings.command_retries)
        try:
            owned = store.run_many([reads.read_owned(keys, p, process_id) for p in range(ids.PARTITIONS)])
            runs = [keys.of_run(run_id) for run_ids in owned for run_id in run_ids]
            if runs:
                store.run_many([calls.expire_lease(run, owner=process_id, cause=cause) for run in runs])
            store.run(calls.forget_process(keys.workers, process_id))
            _log.info("pool.leases-ended", process_id=process_id, cause=cause, turns=len(runs))
        except RunnerError as why:
            _log.warning("pool.leases-left-to-run-out", process_id=process_id, why=str(why))
        finally:
            store.close()

    def _respawn_due(self) -> None:
        for member in self._members:
            if not (member.pid or self._stopping) and member.due_s <= time.monotonic():
                self._spawn(member)

    def _kill_the_late(self) -> None:
        if self._stopping and time.monotonic() > self._stop_by_s:
            for member in self._members:
                if member.pid:
                    os.kill(member.pid, signal.SIGKILL)

    def _spawn(self, member: Member) -> None:
        member.process_id, member.born_s = ids.new_process_id(), time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        member.pid = os.fork()
        if member.pid == 0:
            self._be_child(member.process_id)

    def _be_child(self, process_id: str) -> NoReturn:
        code = 1
        try:
            os.close(self._alive_write)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            watch_parent(self._alive_read)
            code = self._work(process_id)
        except BaseException:  # noqa: BLE001 - a child must never return into the parent's code
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _cause(self, status: int) -> str:
        """Why a process ended, in words; empty for a clean end."""
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return f"exit code {code}" if code else ""
        kills = _out_of_memory_kills(self._memory_events)
        if code == -signal.SIGKILL and kills > self._out_of_memory_kills:
            self._out_of_memory_kills = kills
            return "out of memory"
        return f"signal {signal.Signals(-code).name}"


def watch_parent(alive_read: int) -> None:
    """Sends this process SIGTERM when the pipe's other end closes: its parent is gone. As the parent would have done,
    it kills the process when that is late."""

    def watch() -> None:
        os.read(alive_read, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _out_of_memory_kills(memory_events: Path) -> int:
    """How many processes of this control group the kernel killed for memory; 0 where it cannot be known."""
    try:
        lines = memory_events.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
