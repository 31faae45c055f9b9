"""The processes that benchmarks start: worker pools, supervisors, and the writers that they are compared with.

Rules of this file: each program dies with the benchmark that started it, and is ended by its pid.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from benchmarks.measure import environment
from runner.process.lifeline import end_with_parent
from runner.process.supervisor import run_supervisor
from runner.process.worker.pool import run_pool
from runner.settings import load_settings
from runner.telemetry import set_up_logging

STOP_S = 20.0


class Program:
    """One started program."""

    def __init__(self, url: str, *words: str | int, **settings: str | int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.programs", *map(str, words)],
            env=environment(url, **settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def ask(self, line: str = "") -> str:
        """Sends a line and returns the line that answers it; without one, the next line it says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if line:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def family(self) -> list[int]:
        """Its pid and those of its processes."""
        with suppress(psutil.NoSuchProcess):
            return [self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True))]
        return []

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._process.terminate()

    def kill_all(self) -> None:
        """Ends it and all its processes as a power cut would: none of them gets to say a word."""
        family = self.family()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, SIGKILL when it takes too long; returns when it is gone."""
        family = self.family()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pid in family[1:]:
            with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                psutil.Process(pid).wait(STOP_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def started(url: str, *words: str | int, **settings: str | int) -> Iterator[Program]:
    """A program for the length of a `with` block."""
    program = Program(url, *words, **settings)
    try:
        yield program
    finally:
        program.stop()


def main() -> int:
    """Becomes the program that the command line names."""
    end_with_parent(os.getppid())
    set_up_logging(os.environ.get("BENCH_LOG", "CRITICAL"))
    match sys.argv[1:]:
        case ["pool", processes]:
            return run_pool(load_settings(), processes=int(processes))
        case ["supervisor"]:
            return run_supervisor(load_settings())
        case ["plain-rq-worker"]:
            from benchmarks.plain_rq import work

            return work(load_settings())
        case ["tail-writer", runs, per_s, seconds]:
            from benchmarks.tail_writer import write

            return write(load_settings(), runs=int(runs), per_s=float(per_s), seconds=float(seconds))
        case ["zombie-writer", run_id, hold]:
            from benchmarks.zombie_writer import write as append_until_told

            return append_until_told(load_settings(), run_id, hold=int(hold))
        case words:
            raise SystemExit(f"no such program: {words}")


if __name__ == "__main__":
    sys.exit(main())
