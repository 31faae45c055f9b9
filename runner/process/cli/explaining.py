"""`explain`: every transition of a run in words, and what will happen to it next.

Rules of this file: offsets count from the moment the run was recorded; what comes next is read from the record by the
same bounds that verdicts use, and nothing here decides.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from runner.client import Runner
from runner.core.recovery.budgets import Budgets
from runner.core.run import ENDED, State
from runner.process.cli.connecting import with_runner
from runner.process.cli.crew import Crew, read_workers
from runner.process.cli.printing import duration, say, say_json
from runner.store.call import Call
from runner.store.keys import RunKeys
from runner.store.records import RunRecord

_WORDS = {
    "created": "recorded, to be enqueued",
    "claimed": "claimed by {detail}",
    "handed-over": "handed over by {detail}, whose process was stopping",
    "retry": "given back, to be tried again later: {detail}",
    "owner-gone": "its worker is gone: {detail}",
    "lost": "taken back from its worker: {detail}",
    "cancel-requested": "asked to end as cancelled",
    **{state.value: f"ended as {state.value}: {{detail}}" for state in ENDED},
}


@dataclass(frozen=True, slots=True)
class Next:
    """What is known about a run's future. Times are ms of the server's clock."""

    words: list[str]
    lease_until: int | None = None
    silence_until: int | None = None
    expires_in_ms: int | None = None


def run_explain(arguments: Namespace) -> int:
    """Explains a run."""

    async def work(runner: Runner) -> int:
        events = await runner.explain(arguments.run_id)
        record = (await runner.get(arguments.run_id)).record
        crew = await read_workers(runner.links)
        expires_in_ms = await runner.links.store.run(_time_to_live(runner.links.keys.of_run(arguments.run_id)))
        transitions = [transition(event, record.created_at) for event in events]
        coming = what_comes(record, crew, expires_in_ms)
        if arguments.json:
            say_json(_as_json(record, transitions, coming))
        else:
            _say(record, transitions, coming)
        return 0

    return with_runner(work)


def transition(event: dict[str, str], created_at: int) -> dict[str, Any]:
    """One transition with its offset and its words; an unknown one keeps its own name."""
    what, detail = event["what"], event["detail"]
    words = _WORDS.get(what, f"{what} {{detail}}").replace("{detail}", detail)
    at = int(event["at"])
    return {
        "at": at,
        "offset_ms": at - created_at,
        "epoch": int(event["epoch"]),
        "what": what,
        "detail": detail,
        "words": words.strip(),
    }


def what_comes(record: RunRecord, crew: Crew, expires_in_ms: int) -> Next:
    """What will happen to a run, as of `crew.now_ms`."""
    if record.state in ENDED:
        kept = f"; what is stored of it is kept for another {duration(expires_in_ms)}" if expires_in_ms >= 0 else ""
        return Next([f"nothing: it has ended{kept}"], expires_in_ms=expires_in_ms if expires_in_ms >= 0 else None)
    budgets = Budgets.model_validate_json(record.budgets)
    if record.state is State.QUEUED:
        return Next([_about_queued(record, crew), *_spent(record, budgets)])
    silence_until = None if budgets.no_progress_ms is None else record.progress_at + budgets.no_progress_ms
    words = [*_about_running(record, crew.now_ms, silence_until), *_spent(record, budgets)]
    return Next(words, lease_until=record.lease_until, silence_until=silence_until)


def _about_queued(record: RunRecord, crew: Crew) -> str:
    if record.cancel_at:
        return "it ends as cancelled at the next sweep of a supervisor"
    waited = duration(max(0, crew.now_ms - record.queued_at))
    if record.dispatch == "pending":
        return f"recorded {waited} ago and not yet enqueued: a supervisor enqueues it"
    if not crew.alive:
        return f"in queue {record.queue!r} for {waited}; no worker is alive: start one with `runner worker`"
    return f"in queue {record.queue!r} for {waited}; {len(crew.alive)} workers alive, {crew.free} places free"


def _about_running(record: RunRecord, now_ms: int, silence_until: int | None) -> list[str]:
    lease = record.lease_until - now_ms
    held = f"owned for another {duration(lease)}" if lease > 0 else f"its lease ended {duration(-lease)} ago"
    words = [f"{held}; its worker renews that, and when it does not, a supervisor takes the run back"]
    if record.cancel_at:
        words.append("it ends as cancelled when its worker hears of it, or when its lease is over")
    if silence_until is not None:
        left = max(0, silence_until - now_ms)
        words.append(f"without new content it is given up in {duration(left)} (no_progress_ms)")
    return words


def _spent(record: RunRecord, budgets: Budgets) -> list[str]:
    attempts = f"{record.attempt} of {_limit(budgets.attempts)} attempts in a row without progress"
    lost = f"{record.strikes} of {_limit(budgets.lost_workers)} lost workers"
    return [f"budgets: {attempts}, {lost}, silence {_window(budgets.no_progress_ms)}"]


def _limit(value: int | None) -> str:
    return "any number of" if value is None else str(value)


def _window(value: int | None) -> str:
    return "without limit" if value is None else f"up to {duration(value)}"


def _time_to_live(run: RunKeys) -> Call[int]:
    return Call("PTTL", int, (), (run.run,), is_act=False)


def _as_json(record: RunRecord, transitions: list[dict[str, Any]], coming: Next) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "agent": record.agent,
        "state": record.state.value,
        "reason": record.reason or None,
        "transitions": transitions,
        "next": {
            "words": coming.words,
            "lease_until": coming.lease_until,
            "silence_until": coming.silence_until,
            "expires_in_ms": coming.expires_in_ms,
        },
    }


def _say(record: RunRecord, transitions: list[dict[str, Any]], coming: Next) -> None:
    say(f"run {record.run_id}, agent {record.agent}: {record.state.value}")
    for item in transitions:
        say(f"{'+' + duration(item['offset_ms']):>14}  epoch {item['epoch']:<3} {item['words']}")
    for line in coming.words:
        say(f"{'next':>14}  {line}")
