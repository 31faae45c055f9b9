"""A call: one operation of the store as a value, before any I/O.

Rules of this file: a call knows its command and how to read the answer, not how to send it. It says whether it may be
repeated when its reply was lost; almost every act may, because it recognises itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeVar

T = TypeVar("T")

Arg = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    """One atomic act: the text of its Lua file behind the shared prelude."""

    name: str
    text: str
    sha: str


def script(name: str) -> Script:
    """The act of that name. AssertionError when there is no such file: a bug."""
    return _loaded(name, _read("prelude"))


def script_with_clock(name: str, clock: str) -> Script:
    """The act under another clock, for tests: `clock` is the Lua body that returns the time in ms."""
    real = "  local t = redis.call('TIME')\n  return t[1] * 1000 + math.floor(t[2] / 1000)\n"
    prelude = _read("prelude")
    assert real in prelude
    return _loaded(name, prelude.replace(real, clock))


def script_names() -> tuple[str, ...]:
    """Every act there is."""
    names = (entry.name.removesuffix(".lua") for entry in files("runner.store").joinpath("lua").iterdir())
    return tuple(sorted(name for name in names if name != "prelude"))


@cache
def _loaded(name: str, prelude: str) -> Script:
    text = prelude + _read(name)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@cache
def _read(name: str) -> str:
    return files("runner.store").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One operation: an act (by name, with keys and arguments) or a plain command."""

    name: str
    parse: Callable[[Any], T]
    args: tuple[Arg, ...]
    keys: tuple[str, ...] = ()
    is_act: bool = True
    repeatable: bool = field(default=True)

    def command(self, sha: str) -> tuple[Arg, ...]:
        """The words to send; `sha` is the act's, and unused for a plain command."""
        if self.is_act:
            return ("EVALSHA", sha, len(self.keys), *self.keys, *self.args)
        return (self.name, *self.keys, *self.args)
