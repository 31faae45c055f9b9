"""The core is pure: values in, values out. Time is an argument, chance is an argument, and nothing waits."""

from __future__ import annotations

import ast

from tests.architecture.tree import dotted, modules

FORBIDDEN = frozenset(
    {
        "asyncio",
        "concurrent",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "select",
        "signal",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
    }
)
CLOCKS = frozenset({"datetime.now", "datetime.utcnow", "datetime.today", "date.today"})


def test_the_core_imports_no_clock_no_chance_and_no_input_or_output() -> None:
    found = [
        f"{module.at(node)} imports {name}"
        for module in modules("runner/core")
        for node, name in module.imports()
        if name.split(".")[0] in FORBIDDEN
    ]
    assert found == []


def test_the_core_reads_no_clock_and_opens_nothing() -> None:
    found = [
        f"{module.at(node)} calls {dotted(node.func)}"
        for module in modules("runner/core")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (".".join(dotted(node.func).split(".")[-2:]) in CLOCKS or dotted(node.func) in {"open", "print", "input"})
    ]
    assert found == []


def test_nothing_in_the_core_waits() -> None:
    waits = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    found = [
        module.at(node)
        for module in modules("runner/core")
        for node in ast.walk(module.tree)
        if isinstance(node, waits)
    ]
    assert found == []
