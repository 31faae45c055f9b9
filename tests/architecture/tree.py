"""The project's files as the rules of the house see them: Python modules with their syntax trees, and tracked texts.

Rules of this file: it reads and never judges. Paths are shown relative to the project, as a person would name them.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def shown(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def at(self, node: ast.AST) -> str:
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def imports(self) -> Iterator[tuple[ast.stmt, str]]:
        """Every imported dotted name: `from time import sleep` is `time.sleep`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node, name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node, f"{node.module or ''}.{name.name}") for name in node.names)


@cache
def _parsed(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path, text, ast.parse(text, filename=str(path)))


def modules(*folders: str) -> list[Module]:
    """All Python files under these folders of the project, in the order of their paths."""
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert found, f"no Python file under {', '.join(folders)}: the rule would check nothing"
    return [_parsed(path) for path in found]


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Path and text of each file that is in version control, or would be if it were added now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            raw = path.read_bytes()
            if b"\0" not in raw:
                yield name, raw.decode("utf-8", errors="replace")


def dotted(node: ast.expr) -> str:
    """`time.sleep` for that expression, and "" for what is not a chain of names."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            before = dotted(value)
            return f"{before}.{attr}" if before else ""
        case _:
            return ""
