"""turnrunner: durable agent turns on Redis and RQ.

Public names are loaded when they are first used, so that importing a part of the package costs only that part.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.agent import Agent, Agents, Model, TurnContext
    from runner.client import Runner, SyncRunner
    from runner.errors import RunnerError
    from runner.settings import Settings, load_settings

_HOMES = {
    "Agent": "runner.agent",
    "Agents": "runner.agent",
    "Model": "runner.agent",
    "TurnContext": "runner.agent",
    "Runner": "runner.client",
    "SyncRunner": "runner.client",
    "Settings": "runner.settings",
    "load_settings": "runner.settings",
    "RunnerError": "runner.errors",
}

__all__ = [
    "Agent",
    "Agents",
    "Model",
    "Runner",
    "RunnerError",
    "Settings",
    "SyncRunner",
    "TurnContext",
    "load_settings",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'runner' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
