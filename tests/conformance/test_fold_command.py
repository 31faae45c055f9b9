"""`runner fold` as a user meets it: a stream from any server in, its message out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.corpus import as_json, cases
from tests.e2e.command_line import Cli

pytestmark = pytest.mark.e2e

STREAM: list[dict[str, Any]] = [
    {"type": "start", "messageId": "m"},
    {"type": "text-start", "id": "1"},
    {"type": "text-delta", "id": "1", "delta": "привет"},
    {"type": "text-end", "id": "1"},
]
MESSAGE = {"id": "m", "role": "assistant", "parts": [{"type": "text", "text": "привет", "state": "done"}]}
EVENTS = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in STREAM) + "data: [DONE]\n\n"
LINES = "\n".join(map(json.dumps, STREAM))
TAIL = "\n".join(json.dumps({"seq": at, "epoch": 1, "chunk": chunk}) for at, chunk in enumerate(STREAM, start=1))


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "source",
    [LINES, json.dumps(STREAM), f'{TAIL}\n{{"terminal": {{}}}}\n', EVENTS, f": hello\n\n{EVENTS}"],
    ids=["lines", "list", "tail", "events", "events after a comment"],
)
def test_every_form_of_a_stream_makes_the_message(cli: Cli, source: str) -> None:
    ran = cli.run("fold", "--json", stdin=source)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout) == MESSAGE
    assert len(ran.stdout.splitlines()) == 1


def test_a_file_is_read_and_a_person_can_read_the_message(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "stream.txt").write_text(EVENTS, encoding="utf-8")
    ran = cli.run("fold", "--sse", str(tmp_path / "stream.txt"))
    assert json.loads(ran.stdout) == MESSAGE
    assert len(ran.stdout.splitlines()) > 1


def test_what_a_stock_client_would_die_on_is_said_and_the_message_printed(cli: Cli) -> None:
    bad = ['{"type":"nobody"}', "{oops", '{"type":"text-delta","id":"zz","delta":""}']
    ran = cli.run("fold", stdin="\n".join([*bad, LINES]))
    assert ran.returncode == 1
    assert json.loads(ran.stdout) == MESSAGE
    said = ran.stderr.splitlines()
    assert [line.partition(":")[0] for line in said] == [f"chunk {number} is refused" for number in (1, 2, 3)]
    assert "unknown-type (nobody)" in said[0]


def test_the_provider_view(cli: Cli) -> None:
    (message,) = cli_json(cli, "--provider-view", stdin=LINES)
    assert message["role"] == "assistant"
    assert "привет" in json.dumps(message["content"], ensure_ascii=False)


def cli_json(cli: Cli, *words: str, stdin: str) -> Any:
    ran = cli.run("fold", *words, "--json", stdin=stdin)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_cases_are_answered_a_line_each(cli: Cli) -> None:
    asked = [{**case, "mode": "roundtrip"} for case in cases("text_simple")]
    ran = cli.run("fold", "--cases", stdin="\n".join(map(json.dumps, asked)) + "\n\n")
    assert ran.returncode == 0, ran.stderr
    answers = {answer["id"]: answer for answer in map(json.loads, ran.stdout.strip().split("\n"))}
    assert all(as_json(answers[case["id"]]["message"]) == as_json(case["expected"]["message"]) for case in asked)
    assert all(answer.keys() == {"id", "message", "rejected", "forward", "provisional"} for answer in answers.values())


@pytest.mark.parametrize(
    "line", ["{oops", "5", "{}", '{"chunks": [], "initial": 5}', f'{{"chunks": [{"[" * 300}{"]" * 300}]}}']
)
def test_a_line_that_is_no_case_is_a_usage_error(cli: Cli, line: str) -> None:
    ran = cli.run("fold", "--cases", stdin=line)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: line 1")
    assert len(ran.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_a_usage_error(cli: Cli) -> None:
    ran = cli.run("fold", "no-such-file")
    assert ran.returncode == 2
    assert ran.stderr == "error: no-such-file cannot be read: No such file or directory\n"
