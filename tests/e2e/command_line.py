"""`runner` as a process: run to its end, asked for JSON, or started and ended with the test.

Rule of this file: no variable of the developer's own environment reaches the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class Cli:
    """`runner` with one environment. Its long-running commands end with the test."""

    def __init__(self, place: Path, **variables: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNNER_")}
        self._env = {**kept, "PYTHONPATH": str(ROOT), "RUNNER_DATA_DIR": str(place / "data"), **variables}
        self._place = place
        self.started: list[subprocess.Popen[str]] = []

    def with_env(self, **variables: str) -> Cli:
        return Cli(self._place, **{**self._env, **variables})

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        return subprocess.run(
            self._words(words),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._place,
            env=self._env,
            timeout=PATIENCE_S,
        )

    def ask(self, *words: str) -> Any:
        """The JSON that a command prints."""
        ran = self.run(*words, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Starts a command that goes on."""
        process = subprocess.Popen(
            self._words(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._place,
            env=self._env,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise

    @staticmethod
    def _words(words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "runner", *words]
