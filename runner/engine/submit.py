"""Submitting a run: record and dispatch entry in one act, then the RQ job.

Rules of this file: bad input is refused before anything is stored; once the record is there nothing is lost, whatever
happens to the broker; the same key and payload give the same run.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from runner import ids
from runner.core.transcript.chunk import to_bytes
from runner.core.turn.round import Message
from runner.dispatch import Ticket
from runner.engine.runtime import Links
from runner.errors import IdempotencyConflict, InvalidInput, ServerError, TooLarge
from runner.settings import checked_budgets
from runner.store import calls
from runner.store.answers import Code
from runner.store.records import VERSION
from runner.telemetry import log

_log = log("submit")

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Submission:
    """What a caller asks for: a text, a JSON value for a function turn, the UI messages before it, or any of them.
    `budgets` overrides single budgets of the settings."""

    agent: str
    message: str | None = None
    input: Any = None
    messages: list[Message] | None = None
    thread: str | None = None
    idempotency_key: str | None = None
    budgets: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The run that answers a submission. `created` is False when its key already stood for that run."""

    run_id: str
    created: bool

    @property
    def id(self) -> str:
        """The run's id, as the other calls take it."""
        return self.run_id


async def submit(links: Links, submission: Submission) -> Submitted:
    """Records and enqueues a run. Raises InvalidInput, TooLarge, IdempotencyConflict or a ServerError."""
    settings = links.settings
    _check_kinds(submission)
    payload = _payload(submission, settings.input_bytes)
    budgets = checked_budgets({**settings.budgets.model_dump(), **(submission.budgets or {})})
    key = submission.idempotency_key and ids.checked_name("idempotency key", submission.idempotency_key)
    thread = submission.thread and ids.checked_name("thread", submission.thread)
    run = links.keys.of_run(ids.new_run_id(thread=thread, idempotency_key=key))
    fields = (
        *("v", VERSION, "agent", ids.checked_name("agent", submission.agent), "payload", payload),
        *("message_id", ids.new_message_id(), "thread", thread or "", "key", key or "", "queue", settings.queue),
        *("budgets", budgets.model_dump_json()),
        *(() if budgets.no_progress_ms is None else ("no_progress_ms", budgets.no_progress_ms)),
    )
    digest = ids.payload_digest(submission.agent.encode() + b"\0" + payload)
    idempotency = (key, digest, settings.idempotency_ms) if key else None
    created = await links.store.run(
        calls.create(links.keys, run, fields, dispatch_grace_ms=settings.dispatch_grace_ms, idempotency=idempotency)
    )
    if created.code is Code.CONFLICT:
        raise IdempotencyConflict(key or "", created.run_id)
    if created.code is Code.OK:
        await _enqueue(links, Ticket(run.run_id, 0))
        _log.info("run.submitted", run_id=run.run_id, agent=submission.agent)
    return Submitted(created.run_id, created.code is Code.OK)


async def _enqueue(links: Links, ticket: Ticket) -> None:
    run = links.keys.of_run(ticket.run_id)
    try:
        await asyncio.to_thread(links.dispatcher.enqueue, [ticket])
        await links.store.run(calls.dispatched(run, ticket.epoch, queue_check_ms=links.settings.queue_check_ms))
    except ServerError as why:
        # The run is recorded: to say that it is not would make the caller submit it again.
        _log.warning("submit.left-to-supervisor", run_id=ticket.run_id, why=str(why))


def _payload(submission: Submission, limit: int) -> bytes:
    _check_messages(submission.messages or [])
    request = {"input": submission.input, "message": submission.message, "messages": submission.messages}
    try:
        payload = to_bytes({name: value for name, value in request.items() if value is not None})
    except ValueError as why:
        raise InvalidInput(f"the input is no JSON: {why}") from None
    if len(payload) > limit:
        raise TooLarge("the input", len(payload), limit, "RUNNER_INPUT_BYTES")
    return payload


def _check_messages(messages: list[Any]) -> None:
    for at, message in enumerate(messages):
        parts = message.get("parts") if isinstance(message, dict) else None
        if not isinstance(parts, list) or message.get("role") not in ROLES or not isinstance(message.get("id"), str):
            raise InvalidInput(
                f"messages[{at}] is no UI message: it needs an id, a role of {ROLES} and a list of parts"
            )
        if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
            raise InvalidInput(f"messages[{at}] has a part that is no object with a type")


def _check_kinds(submission: Submission) -> None:
    kinds: tuple[tuple[str, object, type], ...] = (
        ("agent", submission.agent, str),
        ("message", submission.message or "", str),
        ("messages", submission.messages or [], list),
        ("budgets", submission.budgets or {}, dict),
    )
    for name, value, kind in kinds:
        if not isinstance(value, kind):
            raise InvalidInput(f"{name} must be a {kind.__name__}, not a {type(value).__name__}")
