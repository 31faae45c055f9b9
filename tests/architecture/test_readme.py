"""README keeps its word: what it lists exists, and what exists is listed.

Rules of this file: tables are compared with the code they describe; examples must parse, and what they import must be
there.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from runner.core.recovery.budgets import Budgets
from runner.core.run import Reason, State
from runner.process.cli.arguments import parse
from runner.settings import Settings
from tests.architecture.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_A_SETTING = {"RUNNER_LOG_LEVEL"}  # read before the settings, because their refusal is logged


def rows(heading: str) -> list[list[str]]:
    """The cells of every table row of the section with that heading; `\\|` inside a cell is a plain bar."""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def shown(default: Any) -> str:
    match default:
        case None:
            return "not set"
        case bool():
            return f"`{str(default).lower()}`"
        case _:
            return f"`{default}`"


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {cells[0]: cells[1] for cells in rows("Configuration") if cells[0].startswith("`RUNNER_")}
    fields = Settings.model_fields.items()
    assert all(field.default is not PydanticUndefined for _, field in fields)
    assert listed == {f"`RUNNER_{name.upper()}`": shown(field.default) for name, field in fields}


def test_every_variable_that_is_named_exists() -> None:
    named = set(re.findall(r"RUNNER_[A-Z_]*[A-Z]", README))
    assert named - NOT_A_SETTING == {f"RUNNER_{name.upper()}" for name in Settings.model_fields}


def test_every_setting_has_a_unit_and_a_meaning() -> None:
    assert [cells for cells in rows("Configuration")[1:] if len(cells) != 4 or not all(cells)] == []


def test_every_budget_is_listed_with_its_default() -> None:
    listed = {cells[0].strip("`"): cells[1] for cells in rows("Budgets")[1:]}
    assert listed == {name: str(field.default) for name, field in Budgets.model_fields.items()}


def test_every_end_is_listed() -> None:
    ends = [cells for cells in rows("Using it from a service") if cells[0].startswith("`")]
    assert {cells[0].strip("`") for cells in ends} == set(State) - {State.QUEUED, State.RUNNING}
    assert {reason for cells in ends for reason in re.findall(r"`(\w+)`", cells[1])} == set(Reason)


def test_every_invariant_is_listed_once_and_in_order() -> None:
    listed = [cells[0] for cells in rows("What is guaranteed") if cells[0]]
    assert listed == [f"I{number}" for number in range(1, 23)]


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    commands = set(re.findall(r"^    (\w+) {2,}", capsys.readouterr().out, flags=re.MULTILINE))
    listed = {match[1] for cells in rows("Command line") if (match := re.match(r"`runner (\w+)", cells[0]))}
    assert listed == commands
    assert listed


@pytest.mark.parametrize("line", sorted({cells[0] for cells in rows("Command line") if "--" in cells[0]}))
def test_every_option_that_is_listed_exists(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = line.strip("`").split()[1]
    with pytest.raises(SystemExit):
        parse([command, "--help"])
    told = capsys.readouterr().out
    assert [option for option in re.findall(r"--[a-z-]+", line) if option not in told] == []


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"(?<![\w./])(?:scripts|runner|jobs|tests)/[\w./]*\w", README))
    assert named >= {"scripts/demo", "scripts/test"}
    assert sorted(name for name in named if not _exists(ROOT / name)) == []


def _exists(path: Path) -> bool:
    return path.exists() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
def test_examples_parse_and_import_what_is_there(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []
