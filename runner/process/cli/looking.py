"""`show`, `list`, `workers` and `cancel`: one question, one answer.

Rule of this file: JSON has null for what is not there; times are ms of the server's clock.
"""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

from runner.client import Runner
from runner.core.run import ENDED
from runner.engine.inspection import Cancelled, RunView
from runner.errors import RunNotFound
from runner.process.cli.connecting import with_runner
from runner.process.cli.crew import read_all_workers
from runner.process.cli.printing import duration, remark, say, say_json, table
from runner.store import reads
from runner.store.records import ProcessFacts, RunRecord


def run_show(arguments: Namespace) -> int:
    """Shows a run and its message so far."""

    async def work(runner: Runner) -> int:
        facts = view_as_json(await runner.get(arguments.run_id))
        if arguments.json:
            say_json(facts)
        else:
            _say_run(facts)
        return 0

    return with_runner(work)


def run_list(arguments: Namespace) -> int:
    """Lists the runs that have not ended."""

    async def work(runner: Runner) -> int:
        records = [r for r in await runner.live_runs(limit=arguments.limit) if r.state not in ENDED]
        now_ms = await runner.links.store.run(reads.read_time())
        if arguments.json:
            say_json([_record_as_json(record) for record in records])
        elif not records:
            say("no live runs")
        else:
            head = ("RUN", "AGENT", "STATE", "ATTEMPTS", "SEQ", "AGE", "OWNER")
            say(table(head, [_row(record, now_ms) for record in records]))
        return 0

    return with_runner(work)


def run_workers(arguments: Namespace) -> int:
    """Lists the worker processes that live."""

    async def work(runner: Runner) -> int:
        crew = await read_all_workers(runner.links)
        if arguments.json:
            say_json([_process_as_json(facts) for facts in crew.alive])
        elif not crew.alive:
            say("no worker is alive: start one with `runner worker`, or everything with `runner up`")
        else:
            head = ("WORKER", "PID", "HOST", "QUEUE", "RUNNING", "CAPACITY", "LAST BEAT")
            say(table(head, [_worker_row(facts, crew.now_ms) for facts in crew.alive]))
        for facts in () if arguments.json else crew.silent:
            age = duration(crew.now_ms - facts.last_beat_ms)
            remark(f"silent for {age}: {facts.id} (pid {facts.pid} on {facts.host}); its turns go to others")
        return 0

    return with_runner(work)


def run_cancel(arguments: Namespace) -> int:
    """Asks that a run ends as cancelled."""

    async def work(runner: Runner) -> int:
        answer = await runner.cancel(arguments.run_id)
        state = await _state_now(runner, answer)
        if arguments.json:
            say_json({"run_id": answer.run_id, "landed": answer.landed, "state": state})
        elif not answer.landed:
            say(f"run {answer.run_id} had already ended: {state}")
        elif state in ENDED:
            say(f"run {answer.run_id} is {state}")
        else:
            say(f"run {answer.run_id} is {state}; it ends as cancelled as soon as its worker hears of it")
        return 0

    return with_runner(work)


async def _state_now(runner: Runner, answer: Cancelled) -> str:
    """The state after the cancel: a queued run has ended by it."""
    try:
        return (await runner.get(answer.run_id)).record.state.value
    except RunNotFound:
        return answer.state


def view_as_json(view: RunView) -> dict[str, Any]:
    """A run and its message, as `show --json` prints them."""
    parts = view.message["parts"]
    text = "".join(str(part.get("text", "")) for part in parts if part["type"] == "text")
    return {**_record_as_json(view.record), "message": view.message, "text": text}


def _record_as_json(record: RunRecord) -> dict[str, Any]:
    counts = ("attempts", "epoch", "progress", "seq", "handovers", "strikes")
    others = ("owner", "thread", "key", "queue", "created_at", "started_at", "ended_at", "cancel_at", "progress_at")
    return {
        "run_id": record.run_id,
        "agent": record.agent,
        "state": record.state.value,
        "reason": record.reason or None,
        "error": record.error or None,
        **{name: getattr(record, name) for name in counts},
        **{name: getattr(record, name) or None for name in others},
    }


def _process_as_json(facts: ProcessFacts) -> dict[str, Any]:
    names = ("id", "pid", "parent_pid", "host", "queue", "running", "capacity", "last_beat_ms")
    return {name: getattr(facts, name) for name in names}


def _row(record: RunRecord, now_ms: int) -> tuple[object, ...]:
    age = duration(max(0, now_ms - record.created_at))
    owner = record.owner if record.state == "running" else "-"
    return record.run_id, record.agent, record.state.value, record.attempts, record.seq, age, owner or "-"


def _worker_row(facts: ProcessFacts, now_ms: int) -> tuple[object, ...]:
    beat = f"{duration(max(0, now_ms - facts.last_beat_ms))} ago"
    return facts.id, facts.pid, facts.host, facts.queue, facts.running, facts.capacity, beat


def _say_run(facts: dict[str, Any]) -> None:
    shown = {name: value for name, value in facts.items() if value is not None and name not in {"message", "text"}}
    for name, value in shown.items():
        say(f"{name:<12} {_moment(value) if name.endswith('_at') else value}")
    if facts["text"]:
        say(f"\n{facts['text']}")


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds")
