"""Every stream of the corpus makes the message it should, refuses what it should and sends clients what it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.core.transcript.chunk import to_bytes
from runner.core.transcript.chunk_models import read_chunk
from runner.core.transcript.part_models import UnknownPart, read_part
from runner.core.transcript.reducer import Fold, public, reduce
from runner.core.transcript.stored_message import provisional_calls
from runner.core.transcript.wire import Refusal, parse_chunk
from runner.process.cli.fold import folded_case
from tests.conformance.corpus import CATEGORIES, DATA, Case, as_json, cases, fold_of, mode_of, unseen

ROOT = Path(__file__).resolve().parents[2]
COMPARED = ("message", "rejected", "forward", "provisional")


def differences(answers: list[dict[str, Any]], expected: list[Case]) -> list[tuple[str, str]]:
    return [
        (case["id"], name)
        for answer, case in zip(answers, expected, strict=True)
        for name in COMPARED
        if as_json(answer[name]) != as_json(case["expected"][name])
    ]


def test_the_corpus_is_whole() -> None:
    assert sum(len(cases(category)) for category in CATEGORIES) == 741


@pytest.mark.parametrize("category", CATEGORIES)
def test_cases(category: str) -> None:
    assert differences([folded_case(case) for case in cases(category)], list(cases(category))) == []


@pytest.mark.parametrize("category", CATEGORIES)
def test_cases_with_a_round_trip_between_any_two_chunks(category: str) -> None:
    tried = [case for case in cases(category) if mode_of(case) is None]
    assert differences([folded_case({**case, "mode": "roundtrip"}) for case in tried], tried) == []


@pytest.mark.parametrize("category", CATEGORIES)
def test_cases_from_a_snapshot_between_any_two_chunks(category: str) -> None:
    for case in cases(category):
        steady, stored = fold_of(case), fold_of(case)
        for chunk in case["chunks"]:
            if isinstance(chunk, dict):
                stored = Fold.load(json.loads(to_bytes(stored.dump())))
                assert as_json(stored.apply(chunk)) == as_json(steady.apply(chunk)), case["id"]
        assert as_json(stored.message()) == as_json(case["expected"]["message"]), case["id"]


@pytest.mark.parametrize("category", CATEGORIES)
def test_cases_chunk_by_chunk(category: str) -> None:
    for case in cases(category):
        if mode_of(case) is not None:
            continue
        message = case["initial"] or {"id": "", "role": "assistant", "parts": []}
        given = to_bytes(case)
        rejected: list[int] = []
        forward: list[list[Any]] = []
        for index, chunk in enumerate(case["chunks"]):
            message, sent, refused = reduce(message, chunk)
            forward.append(list(sent))
            rejected += [index] * refused
        answer = {"message": public(message), "rejected": rejected, "forward": forward}
        answer["provisional"] = provisional_calls(message)
        assert differences([answer], [case]) == []
        assert to_bytes(case) == given, "reduce changed what it was given"


@pytest.mark.parametrize("category", CATEGORIES)
def test_what_is_forwarded_makes_the_same_message(category: str) -> None:
    """The same rules at the client; what a stock client makes of it stands in test_stock_client."""
    for case in cases(category):
        fold = fold_of(case)
        sent = [chunk for each in case["expected"]["forward"] for chunk in each]
        assert [chunk for chunk in sent if fold.apply(chunk).rejected] == []
        hidden = case["expected"].get("unseen") or []
        assert as_json(unseen(fold.message(), hidden)) == as_json(unseen(case["expected"]["message"], hidden)), case[
            "id"
        ]


@pytest.mark.parametrize("category", CATEGORIES)
def test_chunks_and_parts_are_read_and_written_as_they_are(category: str) -> None:
    """I16: the typed views keep every byte, what nobody knows included."""
    for case in cases(category):
        for chunk in case["chunks"]:
            written = to_bytes(chunk)
            if not isinstance(parsed := parse_chunk(written), Refusal):
                assert to_bytes(parsed) == written
            if isinstance(chunk, dict) and not isinstance(view := read_chunk(chunk), Refusal):
                assert to_bytes(view.as_json()) == written
        for part in case["expected"]["message"]["parts"]:
            seen = read_part(part)
            assert not isinstance(seen, UnknownPart)
            assert to_bytes(seen.as_json()) == to_bytes(part)


@pytest.mark.e2e
def test_the_program_answers_every_case() -> None:
    """`runner fold --cases` reads one case a line and prints one answer a line."""
    every = [case for category in CATEGORIES for case in cases(category)]
    source = b"".join(path.read_bytes() for path in sorted((DATA / "corpus").glob("*.jsonl")))
    program = "import sys; from runner.process.cli.main import main; sys.exit(main(['fold', '--cases']))"
    finished = subprocess.run(
        [sys.executable, "-c", program], input=source, capture_output=True, cwd=ROOT, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr.decode()
    answers = {answer["id"]: answer for answer in map(json.loads, finished.stdout.splitlines())}
    assert differences([answers[case["id"]] for case in every], every) == []
