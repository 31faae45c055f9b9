"""`doctor`: is everything there that durable runs need, and what to do where it is not.

Rules of this file: a check is ok, a warning (something is missing or risky) or a failure (a promise is being broken
now, or no run can work); every line that is not ok says what to do; nothing is changed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from argparse import Namespace
from dataclasses import asdict, dataclass
from typing import Literal

from runner import ids
from runner.bootstrap import close_links, load_agents, make_links
from runner.core.server import floor_text, meets_floor
from runner.engine.runtime import Links
from runner.errors import ServerError
from runner.process.address import where, with_server
from runner.process.cli.crew import Crew, read_supervisors, read_workers
from runner.process.cli.printing import duration, say, say_json
from runner.settings import Settings, load_settings
from runner.store import reads
from runner.store.call import Call
from runner.store.server import ServerFacts, read_server

PINGS = 50
SLOW_PING_MS = 10.0
OVERDUE_MS = 5_000
"""A run that should have been looked at longer ago than this was forgotten by the supervisors."""
SKEW_MS = 30_000
RETRIES = 1
"""A doctor does not wait for a server: it says that it is not there."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer; `advice` is empty when all is well."""

    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    advice: str = ""


def run_doctor(arguments: Namespace) -> int:
    """Checks everything."""
    settings = load_settings()
    checks = [check_agents(settings), *_reached(settings)]
    ok = all(check.status != "fail" for check in checks)
    if arguments.json:
        say_json({"ok": ok, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            say(f"{check.status:<5} {check.name:<12} {check.message}")
            if check.advice:
                say(f"{'':<18} {check.advice}")
    return 0 if ok else 1


def _reached(settings: Settings) -> list[Check]:
    try:
        with with_server(settings) as served:
            patient = served.model_copy(update={"command_retries": RETRIES})
            return asyncio.run(examine(patient, where(settings)))
    except ServerError as why:
        return [_refused("server", why)]


async def examine(settings: Settings, address: str) -> list[Check]:
    """Checks the server at `settings.redis_url` and what lives on it. InvalidInput for a malformed address."""
    links = make_links(settings)
    try:
        facts = await read_server(links.store)
        checks = [*check_server_facts(facts, address, allow_eviction=settings.allow_eviction)]
        if checks[0].status == "fail":
            return checks  # what is too old does not know the commands of the other checks
        return [*checks, await _check_latency(links), *await _check_life(links)]
    finally:
        await close_links(links)


def check_agents(settings: Settings) -> Check:
    """Whether the agents can be loaded here. A client may do without; a worker may not."""
    try:
        names = load_agents(settings.agents).names()
    except Exception as why:  # noqa: BLE001 - importing the registry runs code of the application
        told = " ".join(str(why).split())
        return Check("agents", "warn", told, "correct RUNNER_AGENTS (module:attribute) where workers run")
    if not names:
        return Check("agents", "warn", f"{settings.agents} holds no agent", "register one: agents.add(..)")
    return Check("agents", "ok", f"{settings.agents}: {', '.join(names)}")


def check_server_facts(facts: ServerFacts, address: str, *, allow_eviction: bool) -> list[Check]:
    """Judges what a server said of itself: version, eviction, persistence."""
    named = f"{facts.product} {facts.version}"
    if not meets_floor(facts.product, facts.version):
        needs = floor_text(facts.product)
        server = Check("server", "fail", f"{named}, {address}: too old", f"upgrade it to {needs} or newer")
    else:
        server = Check("server", "ok", f"{named}, {address}")
    return [server, _eviction(facts.policy, allow_eviction=allow_eviction), _persistence(facts.persistence)]


def _eviction(policy: str, *, allow_eviction: bool) -> Check:
    if policy == "noeviction":
        return Check("eviction", "ok", "maxmemory-policy is noeviction: no run is dropped")
    if policy == "unknown":
        return Check("eviction", "warn", "the server does not tell its maxmemory-policy", "make sure it is noeviction")
    advice = "CONFIG SET maxmemory-policy noeviction, and set it in the server's configuration"
    message = f"maxmemory-policy is {policy}: the server may drop runs"
    if allow_eviction:
        return Check("eviction", "warn", f"{message} (RUNNER_ALLOW_EVICTION accepts that)", advice)
    return Check("eviction", "fail", message, f"{advice}; or accept the loss with RUNNER_ALLOW_EVICTION=true")


def _persistence(persistence: str) -> Check:
    if persistence == "unknown":
        return Check("persistence", "warn", "the server does not tell whether it persists", "make sure that it does")
    if persistence == "none":
        advice = "CONFIG SET appendonly yes, and set it in the server's configuration"
        return Check("persistence", "warn", "no append-only file: a restart of the server may lose runs", advice)
    return Check("persistence", "ok", f"append-only file, appendfsync {persistence.removeprefix('aof ')}")


async def _check_latency(links: Links) -> Check:
    ping = Call("PING", bool, (), is_act=False)
    took_ms = []
    for _ in range(PINGS):
        began = time.perf_counter()
        await links.store.run(ping)
        took_ms.append((time.perf_counter() - began) * 1_000)
    middle = statistics.median(took_ms)
    message = f"a round trip takes {middle:.2f} ms (median of {PINGS}), {max(took_ms):.2f} ms at most"
    if middle > SLOW_PING_MS:
        return Check("latency", "warn", message, "move workers and clients nearer to the server")
    return Check("latency", "ok", message)


async def _check_life(links: Links) -> list[Check]:
    try:
        depth = await asyncio.to_thread(links.dispatcher.depth)
    except Exception as why:  # noqa: BLE001 - whatever the broker's client raises says that the queue cannot be read
        return [Check("queue", "fail", f"the queue cannot be read: {why}", "check RUNNER_BROKER_URL")]
    now_ms = await links.store.run(reads.read_time())
    live = sum(await _each_partition(links, "ZCARD"))
    overdue = sum(await _each_partition(links, "ZCOUNT", "-inf", f"({now_ms - OVERDUE_MS}"))
    workers, supervisors = await read_workers(links), await read_supervisors(links)
    return [
        _queue(links.dispatcher.queue_name, depth, live),
        _workers(workers, depth),
        _supervisors(supervisors, live),
        _due(overdue, supervisors),
        _clock(now_ms, round(time.time() * 1_000)),
    ]


async def _each_partition(links: Links, name: str, *args: str) -> list[int]:
    keys = [links.keys.due(partition) for partition in range(ids.PARTITIONS)]
    return await links.store.run_many([Call(name, int, args, (key,), is_act=False) for key in keys])


def _queue(name: str, depth: int, live: int) -> Check:
    return Check("queue", "ok", f"{name!r} holds {depth} waiting jobs; {live} runs have not ended")


def _workers(crew: Crew, depth: int) -> Check:
    silent = f"; {len(crew.silent)} fell silent without a goodbye" if crew.silent else ""
    if not crew.alive:
        advice = "start one with `runner worker`, or everything with `runner up`"
        status: Literal["warn", "fail"] = "fail" if depth else "warn"
        return Check("workers", status, f"none is alive{silent}", advice)
    message = f"{len(crew.alive)} alive, {crew.running} turns of {crew.capacity} places, {crew.free} free{silent}"
    if depth and crew.free <= 0:
        return Check("workers", "warn", message, "start more: `runner worker --processes ..` or on another machine")
    return Check("workers", "ok", message)


def _supervisors(crew: Crew, live: int) -> Check:
    if crew.alive:
        return Check("supervisor", "ok", f"{len(crew.alive)} alive")
    message = "none is alive: a run whose worker is lost stays as it is"
    advice = "start one with `runner supervisor`, or everything with `runner up`"
    return Check("supervisor", "fail" if live else "warn", message, advice)


def _due(overdue: int, supervisors: Crew) -> Check:
    if not overdue:
        return Check("due", "ok", "no run is overdue for a look")
    message = f"{overdue} runs are overdue for a look by more than {duration(OVERDUE_MS)}"
    if supervisors.alive:
        return Check("due", "warn", message, "the supervisor lags behind: see its log, or start a second one")
    return Check("due", "fail", message, "start a supervisor: `runner supervisor`")


def _clock(server_ms: int, here_ms: int) -> Check:
    skew_ms = here_ms - server_ms
    message = f"this machine's clock and the server's differ by {duration(abs(skew_ms))}"
    if abs(skew_ms) > SKEW_MS:
        return Check("clock", "warn", message, "correct it: runs go by the server's clock, but RQ compares the two")
    return Check("clock", "ok", message)


def _refused(name: str, why: ServerError) -> Check:
    told, _, advice = " ".join(str(why).split()).partition("; ")
    return Check(name, "fail", told, advice)
