"""What the demonstration runs on: a server, a pool of two worker processes, a supervisor and, if wished, a model.

Rules of this file: everything lives in a temporary directory and is stopped, by its pid, when the `with` block ends,
however it ends. Settings of the surroundings (RUNNER_*) are left out, so that nothing of the user's is touched.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from runner.client import Runner
from runner.models.local import LocalModelServer
from runner.process.embedded import start_or_attach

WORKER_PROCESSES = 2
PROGRAMS = {"pool": ["worker", "--processes", str(WORKER_PROCESSES)], "supervisor": ["supervisor"]}
"""As one would start them with the command `runner`."""
READY_S = 60.0
STOP_S = 20.0
_LOG_TAIL_LINES = 8


class NotStarted(Exception):
    """A part of the demonstration did not start; the text says which and why."""


class Services:
    """All of it, started one after the other. `say` is told what is going on."""

    url: str

    def __init__(self, model: str, say: Callable[[str], None]) -> None:
        self._model, self._say = model, say
        self._open = ExitStack()
        self._programs: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            folder = Path(starting.enter_context(tempfile.TemporaryDirectory(prefix="turnrunner-demo-")))
            self._folder = folder
            server = start_or_attach(folder / "server", timeout_s=30, linger_s=0)
            starting.callback(server.stop)
            self.url = server.url
            self._say(f"server: pid {server.pid}, in a temporary directory")
            told = {"RUNNER_REDIS_URL": self.url, "RUNNER_AGENTS": "demonstration.agents:agents"}
            if self._model == "local":
                # Here in the main thread: on Linux the model's server ends with the thread that started it.
                local = starting.enter_context(LocalModelServer(slots=2, log=folder / "model.log"))
                told["STORYTELLER_MODEL_URL"] = local.url
                self._say(f"model: a language model of 135 million parameters, pid {local.pid}")
            for role in PROGRAMS:
                self._programs[role] = _start(role, told, folder / f"{role}.log")
                starting.callback(_stop, self._programs[role])
                self._say(f"{role}: pid {self._programs[role].pid}")
            self._open = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # an impatient second Ctrl-C would leave something running
        self._open.close()

    async def ready(self, runner: Runner) -> list[int]:
        """The pids of the worker processes, once they and the supervisor beat. Raises NotStarted."""
        deadline = time.monotonic() + READY_S
        while True:
            workers = await runner.workers()
            if len(workers) == WORKER_PROCESSES and await runner.supervisors():
                return sorted(worker.pid for worker in workers)
            ended = [role for role, program in self._programs.items() if program.poll() is not None]
            if ended or time.monotonic() > deadline:
                what = f"the {ended[0]} ended" if ended else f"not every program was ready within {READY_S:g} s"
                raise NotStarted(f"{what}\n{self.last_words()}")
            await asyncio.sleep(0.05)

    def last_words(self) -> str:
        """The end of every log, to explain a failure."""
        logs = sorted(self._folder.glob("*.log"))
        tails = [(log.name, log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]) for log in logs]
        return "\n".join(f"  {name}: {line}" for name, lines in tails for line in lines)


def _start(role: str, told: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """In a group of its own, so that Ctrl-C reaches the demonstration alone and nothing is stopped twice."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("RUNNER_", "STORYTELLER_"))
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "runner", *PROGRAMS[role], "--stop-with-parent", str(os.getpid())],
            env={**environment, **told},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _stop(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(STOP_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()
