"""The demonstration, as a newcomer runs it: its promises, its last line, and that it leaves nothing behind.

Rule of this file: `.venv` is taken as it is; installing is tested by whoever runs `scripts/demo` on a new machine.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from runner.core.run import State
from runner.core.transcript.reducer import fold_all
from runner.engine.inspection import RunView
from runner.store.records import RunRecord, Terminal
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
DEMO = [str(ROOT / "scripts" / "demo"), "--no-setup"]
_MARK = "TURNRUNNER_TEST_MARK"
_STORY_ENDS = "went on counting as if nothing had happened."


@pytest.fixture
def marked() -> Iterator[dict[str, str]]:
    """An environment that marks everything started in it; at the end, none of that may be running."""
    environment = {**os.environ, _MARK: uuid.uuid4().hex, "RUNNER_REDIS_URL": "redis://nobody.invalid:1/0"}
    yield environment
    until(lambda: not running(environment[_MARK]), what="end of everything that the demonstration started")


def running(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def run_demo(model: str, environment: dict[str, str]) -> tuple[str, dict[str, Any]]:
    done = subprocess.run(
        [*DEMO, "--model", model], env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert running(environment[_MARK]) == []
    return done.stdout, json.loads(done.stdout.splitlines()[-1])


def check_summary(summary: dict[str, Any], model: str) -> None:
    assert summary["status"] == "ok"
    assert summary["model"] == model
    assert summary["duplicates"] == summary["missing"] == 0
    assert summary["broken"] == []
    assert summary["attempts"] == 4
    assert summary["chunks"] > 40
    assert summary["kill_to_next_chunk_ms"] >= 0
    assert summary["handover_gap_ms"] >= 0
    facts = [(t["signal"], t["state"], t["handovers"], t["lost_workers"]) for t in summary["turns"]]
    assert facts == [("SIGKILL", "completed", 0, 1), ("SIGTERM", "completed", 1, 0)]


def answer(output: str) -> str:
    """The text between the markers, however it was wrapped."""
    lines = [line for line in output.splitlines() if not line.startswith(("   ", "demo:", "=="))]
    return " ".join(" ".join(lines).split())


def test_the_scripted_demo_keeps_every_promise(marked: dict[str, str]) -> None:
    output, summary = run_demo("scripted", marked)
    check_summary(summary, "scripted")
    assert "NOT KEPT" not in output
    stories = re.findall(rf"Once upon a time .*?{re.escape(_STORY_ENDS)}", answer(output))
    assert len(stories) == 2
    assert stories[0] == stories[1]
    assert [len(story) for story in stories] == [turn["characters"] for turn in summary["turns"]]


@pytest.mark.local_model
@pytest.mark.slow
def test_the_demo_keeps_every_promise_with_a_real_model(marked: dict[str, str]) -> None:
    output, summary = run_demo("local", marked)
    check_summary(summary, "local")
    assert output.count(">>> SIG") == output.count("<<< worker process") == 2


def test_ctrl_c_stops_everything(marked: dict[str, str]) -> None:
    with subprocess.Popen([*DEMO, "--model", "scripted"], env=marked, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        before = [line for line in iter(demo.stdout.readline, "") if "<<< worker" not in line or interrupt(demo)]
        assert demo.wait(60) == 130
    assert before[-1].startswith("demo: interrupted")


def interrupt(demo: subprocess.Popen[str]) -> bool:
    demo.send_signal(signal.SIGINT)
    return True


def test_unknown_options_are_refused_with_the_way_out() -> None:
    done = subprocess.run([*DEMO, "--modle", "local"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "usage: scripts/demo" in done.stderr


# The judgement itself: a demonstration that cannot fail shows nothing.


@pytest.fixture
def promises(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("demonstration.promises")


def witnessed(*, seqs: tuple[int, ...] = (1, 2, 3, 4), **changes: Any) -> Any:
    """A turn of four chunks, interrupted by SIGKILL as it should be, seen as `seqs`."""
    turn = importlib.import_module("demonstration.turn")
    stream: list[dict[str, Any]] = [
        {"type": "start", "messageId": "m"},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "A whole"},
        {"type": "text-delta", "id": "t", "delta": " answer."},
    ]
    good = {
        "run_id": "r",
        "agent": "a",
        "message_id": "m",
        "state": State.COMPLETED,
        "seq": 4,
        "attempts": 2,
        "strikes": 1,
    }
    record = RunRecord.model_validate(good | changes)
    ended = Terminal(run_id="r", state=record.state, reason="finished")
    chunks = [stream[seq - 1] for seq in seqs]
    text = "".join(chunk.get("delta", "") for chunk in chunks)
    live = turn.Reading(list(seqs), chunks, ended, text, 2)
    replay = turn.Reading([1, 2, 3, 4], stream, ended, "A whole answer.", 2)
    view = RunView(record, fold_all("m", stream).message())
    return turn.Witnessed(live, replay, view, turn.Strike(1, 1, 0.0), 10, 10)


def broken(promises: ModuleType, number: signal.Signals, turn: Any) -> set[str]:
    return {judged.promise for judged in promises.judge(number, turn) if not judged.kept}


def test_a_good_turn_keeps_every_promise(promises: ModuleType) -> None:
    assert broken(promises, signal.SIGKILL, witnessed()) == set()
    assert broken(promises, signal.SIGTERM, witnessed(strikes=0, handovers=1)) == set()


@pytest.mark.parametrize(
    ("seqs", "promise"),
    [
        ((1, 2, 3, 3, 4), "no chunk arrives twice"),
        ((1, 2, 4), "no chunk is missing"),
        ((1, 2, 3), "no chunk is missing"),
        ((1, 2, 4, 3), "they arrive in order"),
        ((1, 2, 4), "the stored message is what the reader saw"),
        ((1, 2, 4, 3), "a late reader sees the same, chunk by chunk"),
    ],
)
def test_a_wrong_reading_is_noticed(promises: ModuleType, seqs: tuple[int, ...], promise: str) -> None:
    assert promise in broken(promises, signal.SIGKILL, witnessed(seqs=seqs))


@pytest.mark.parametrize(
    ("number", "changes", "promise"),
    [
        (signal.SIGKILL, {"state": State.SEALED}, "the answer comes to its end"),
        (signal.SIGKILL, {"attempts": 3}, "one loss, one more attempt"),
        (signal.SIGTERM, {"handovers": 1, "strikes": 1}, "a planned stop is no failure"),
        (signal.SIGTERM, {"handovers": 0, "strikes": 0}, "a planned stop is no failure"),
    ],
)
def test_a_wrong_record_is_noticed(
    promises: ModuleType, number: signal.Signals, changes: dict[str, Any], promise: str
) -> None:
    turn = witnessed(**changes)
    assert promise in broken(promises, number, turn)
    assert promises.summary("scripted", [(number, turn)], [promise])["status"] == "failed"


def test_text_that_never_went_on_is_noticed(promises: ModuleType) -> None:
    turn = replace(witnessed(), silence_ms=-1)
    assert "the text goes on where it stopped" in broken(promises, signal.SIGKILL, turn)
