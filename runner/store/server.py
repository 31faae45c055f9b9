"""What a server must be, checked when a process starts.

Rules of this file: a server below the floor or one that may drop runs is refused with the way out; what a managed
server does not let us ask is reported as unknown, not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.core.server import floor_text, identify, meets_floor
from runner.errors import ServerEvicts, ServerRefused, ServerTooOld
from runner.store.answers import pairs
from runner.store.call import Call
from runner.store.executor import AsyncExecutor


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What `doctor` shows of a server. `policy` and `persistence` are "unknown" where the server does not tell."""

    product: str
    version: str
    policy: str
    persistence: str


async def check_server(executor: AsyncExecutor, *, allow_eviction: bool = False) -> ServerFacts:
    """The server's facts. Raises ServerUnreachable, ServerTooOld or ServerEvicts."""
    facts = await read_server(executor)
    if not meets_floor(facts.product, facts.version):
        raise ServerTooOld(facts.product, facts.version, floor_text(facts.product))
    if not allow_eviction and facts.policy not in ("noeviction", "unknown"):
        raise ServerEvicts(facts.policy)
    return facts


async def read_server(executor: AsyncExecutor) -> ServerFacts:
    """The server's facts, unjudged."""
    info = await executor.run(Call("INFO", _info, ("server",), is_act=False))
    product, version = identify(info)
    policy = await _configured(executor, "maxmemory-policy")
    return ServerFacts(product, version, policy, await _persistence(executor))


async def _persistence(executor: AsyncExecutor) -> str:
    appendonly = await _configured(executor, "appendonly")
    if appendonly != "yes":
        return "unknown" if appendonly == "unknown" else "none"
    return f"aof {await _configured(executor, 'appendfsync')}"


async def _configured(executor: AsyncExecutor, name: str) -> str:
    def parse(raw: Any) -> str:
        return next((_text(value) for value in pairs(raw).values()), "unknown")

    try:
        return await executor.run(Call("CONFIG", parse, ("GET", name), is_act=False))
    except ServerRefused:
        return "unknown"


def _info(raw: Any) -> dict[str, str]:
    if isinstance(raw, dict):
        return {str(key): str(value) for key, value in raw.items()}
    lines = (line.partition(":") for line in raw.decode().splitlines() if ":" in line)
    return {key: value for key, _, value in lines}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
