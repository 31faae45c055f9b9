"""The shape of the code: sizes that a reader can hold, and names and first lines that teach a newcomer.

A file or a function over its limit has two ideas in it: split it by idea, not by kind.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.tree import ROOT, modules

MODULE_LINES = 400
FUNCTION_LINES = 50
EVERYTHING = ("runner", "jobs", "tests")

# Names that say nothing of what is inside, or that another library owns.
NOT_USED = frozenset(
    {
        "base",
        "common",
        "coordinator",
        "coordinators",
        "handler",
        "handlers",
        "helper",
        "helpers",
        "manager",
        "managers",
        "misc",
        "session",
        "sessions",
        "task",
        "tasks",
        "util",
        "utils",
    }
)


def test_modules_stay_small() -> None:
    found = [f"{m.shown}: {m.lines} lines" for m in modules(*EVERYTHING) if m.lines > MODULE_LINES]
    assert found == [], f"limit: {MODULE_LINES} lines"


def test_functions_stay_small() -> None:
    found = [
        f"{module.at(function)} {function.name}: {length} lines"
        for module in modules(*EVERYTHING)
        for function in module.functions()
        if (length := (function.end_lineno or function.lineno) - function.lineno + 1) > FUNCTION_LINES
    ]
    assert found == [], f"limit: {FUNCTION_LINES} lines"


def test_every_module_says_what_it_is() -> None:
    found = [m.shown for m in modules(*EVERYTHING) if m.text.strip() and not ast.get_docstring(m.tree)]
    assert found == []


def _words(path: Path) -> set[str]:
    return {word for part in path.relative_to(ROOT).with_suffix("").parts for word in part.split("_")}


def test_names_of_modules_teach() -> None:
    words = {module.shown: _words(module.path) for module in modules(*EVERYTHING)}
    assert {shown: sorted(named & NOT_USED) for shown, named in words.items() if named & NOT_USED} == {}
