"""Each benchmark runs at a tiny size and ends with its JSON line. How fast anything is, is not judged here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

METRICS = {
    "append": {"ratio_1", "ratio_50", "chunks_per_s_1", "chunks_per_s_50"},
    "tail": {"p50_ms", "p99_ms", "deliveries", "missing"},
    "first-chunk": {"p50_ms", "p99_ms", "rq_fork_p50_ms", "rq_fork_p99_ms"},
    "turns": {"turns_per_s", "us_per_chunk"},
    "density": {"kb_per_turn", "missed_beats", "turns"},
    "recover": {
        *("kills", "lost", "duplicated", "completed", "runs", "steps_run_twice"),
        *("process_p50_ms", "host_p50_ms", "host_max_ms", "handover_p50_ms"),
    },
    "sweep": {"ratio_100k_1k", "ms_1k", "ms_100k", "cpu_ms_1k", "cpu_ms_100k"},
    "zombie": {"attempts", "epoch_bumps", "accepted"},
    "fold": {"chunks_per_s_corpus", "chunks_per_s_text", "tool_input_ratio", "rebuild_ratio"},
}
NEVER = {"missing", "gaps", "lost", "duplicated", "stuck", "steps_run_twice", "accepted"}
"""What may happen at no size and on no machine."""


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / command[0]), *command[1:]], capture_output=True, text=True, timeout=240, check=False
    )


def _result(finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert finished.returncode == 0, finished.stderr
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return result


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
def test_a_benchmark_ends_with_its_metrics(name: str) -> None:
    result = _result(_run("bench", name, "--smoke"))
    metrics = result["metrics"]
    assert result["bench"] == name
    assert metrics.keys() >= METRICS[name]
    assert {metric: metrics[metric] for metric in NEVER & metrics.keys() if metrics[metric] != 0} == {}
    assert name != "recover" or metrics["completed"] == metrics["runs"]


@pytest.mark.e2e
def test_every_benchmark_is_listed_with_what_it_measures() -> None:
    finished = _run("bench", "--help")
    assert finished.returncode == 0, finished.stderr
    first_words = {line.split()[0] for line in finished.stdout.splitlines() if line.strip()}
    assert first_words >= {*METRICS, "all"}


@pytest.mark.e2e
def test_chaos_is_the_recover_benchmark() -> None:
    finished = _run("chaos", "--help")
    assert finished.returncode == 0, finished.stderr
    assert "scripts/bench recover" in finished.stdout
