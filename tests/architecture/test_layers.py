"""What is loaded when: the core stands alone, and naming the package costs nothing.

The direction of imports is checked by import-linter (scripts/check); these tests ask a fresh interpreter.
"""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.tree import ROOT, modules

OUTSIDE_WORLD = ("redis", "rq", "asyncio", "structlog", "pydantic_settings")

_LOADED = """
import importlib, json, sys
before = set(sys.modules)
for name in {names!r}:
    importlib.import_module(name)
print(json.dumps(sorted({{name.split(".")[0] for name in set(sys.modules) - before}})))
"""


def _loaded_by(*names: str) -> str:
    """The top-level packages that a fresh interpreter loads for these modules, as JSON."""
    ran = subprocess.run(
        [sys.executable, "-c", _LOADED.format(names=names)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _core_modules() -> list[str]:
    paths = (module.path.relative_to(ROOT).with_suffix("") for module in modules("runner/core"))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


def test_the_core_loads_nothing_of_the_outside_world() -> None:
    loaded = _loaded_by(*_core_modules())
    assert '"runner"' in loaded
    assert [name for name in OUTSIDE_WORLD if f'"{name}"' in loaded] == []


def test_naming_the_package_loads_neither_redis_nor_rq() -> None:
    loaded = _loaded_by("runner")
    assert '"runner"' in loaded
    assert [name for name in ("redis", "rq") if f'"{name}"' in loaded] == []
