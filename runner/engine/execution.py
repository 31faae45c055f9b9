"""One attempt: claim, rebuild, run the agent, leave.

Rules of this file: a job whose run moved on is no work; whatever the agent does, the attempt ends in exactly one of the
ways below; what an agent raised fails its run, what a provider or the server did wrong is tried again.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from dataclasses import dataclass

from runner.agent import Agent, FunctionTurn, Program
from runner.core.run import Ending, Reason, State
from runner.engine import rounds, terminal
from runner.engine.context import Context
from runner.engine.hosting import HostedTurn, Interrupt
from runner.engine.rebuild import rebuild
from runner.engine.runtime import Runtime
from runner.errors import (
    AttemptLost,
    ModelRejected,
    ModelRetryable,
    RunnerError,
    ServerError,
    StreamGap,
    UnknownAgent,
)
from runner.store import calls, reads
from runner.store.answers import Code
from runner.store.records import RunRecord
from runner.telemetry import log

_log = log("execution")


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent came to its end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Raised:
    """Something raised."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt was interrupted from outside."""

    interrupt: Interrupt


Outcome = Finished | Raised | Stopped


async def execute(runtime: Runtime, run_id: str, epoch: int) -> None:
    """Runs one attempt of a run whose epoch is still `epoch`; does nothing when it moved on."""
    run = runtime.keys.of_run(run_id)
    turn = HostedTurn(run, runtime.process_id)
    claim = calls.claim(run, epoch, owner=turn.owner, token=turn.token, lease_ms=runtime.settings.lease_ms)
    claimed = await runtime.store.run(claim)
    if claimed.code is Code.CANCELLED:
        await terminal.end_unclaimed(runtime, run, epoch)
    if claimed.record is None:
        _log.info("attempt.not-claimed", run_id=run_id, epoch=epoch, answer=claimed.code.name.lower())
        return
    record = claimed.record
    turn.epoch = record.epoch
    _log.info("attempt.started", run_id=run_id, epoch=turn.epoch, attempt=record.attempts, agent=record.agent)
    with runtime.hosted.hosting(turn):
        try:
            await _attempt(runtime, turn, record)
        except AttemptLost as why:
            _log.warning("attempt.lost", run_id=run_id, epoch=turn.epoch, why=why.why)


async def _attempt(runtime: Runtime, turn: HostedTurn, record: RunRecord) -> None:
    fold = await rebuild(runtime.store, turn.run, record)
    ledger = await runtime.store.run(reads.read_ledger(turn.run)) if record.attempts > 1 else {}
    ctx = Context(runtime, turn, record, fold, ledger)
    outcome = await _perform(runtime, turn, ctx, record)
    await _leave(runtime, turn, ctx, record, outcome)


async def _perform(runtime: Runtime, turn: HostedTurn, ctx: Context, record: RunRecord) -> Outcome:
    work: asyncio.Task[object] = asyncio.create_task(_contained(runtime, ctx, record.agent))
    turn.begin(work)
    if not await turn.work_is_over(work):
        return Stopped(turn.interrupt or Interrupt.HAND_OVER)
    unfinished = work.cancelled() or work.exception() is not None
    if not unfinished:
        with suppress(RunnerError):  # it is the writer's failure then, which is looked at below
            await ctx.writer.flush()
    if turn.interrupt is not None and (unfinished or turn.interrupt is not Interrupt.HAND_OVER):
        return Stopped(turn.interrupt)
    if ctx.writer.failure is not None:
        return Raised(ctx.writer.failure)
    if work.cancelled():
        return Raised(RuntimeError("the agent cancelled itself"))
    error = work.exception()
    return Raised(error) if error is not None else Finished(str(work.result()))


async def _contained(runtime: Runtime, ctx: Context, name: str) -> str:
    """Runs the agent. What would end the whole process fails its run instead: other turns live here too."""
    try:
        return await _run_program(runtime, ctx, name)
    except (SystemExit, KeyboardInterrupt) as why:
        raise RuntimeError(f"the agent raised {type(why).__name__}") from why


async def _run_program(runtime: Runtime, ctx: Context, name: str) -> str:
    program: Program = runtime.agents.get(name)
    await ctx.begin()
    match program:
        case Agent():
            return await rounds.answer(program, ctx)
        case FunctionTurn(function=function):
            running = function(ctx)
            if inspect.isawaitable(running):
                await running
            else:
                async for item in running:
                    await (ctx.say(item) if isinstance(item, str) else ctx.emit(item))
            await ctx.close_parts()
            return "stop"


async def _leave(runtime: Runtime, turn: HostedTurn, ctx: Context, record: RunRecord, outcome: Outcome) -> None:
    match outcome:
        case Finished(reason=reason):
            await terminal.end(runtime, turn, ctx, Ending(State.COMPLETED, Reason.FINISHED), finish_reason=reason)
        case Stopped(interrupt=interrupt):
            await _stop(runtime, turn, ctx, record, interrupt)
        case Raised(error=AttemptLost() as lost):
            raise lost
        case Raised(error=(ModelRetryable() | ServerError() | StreamGap()) as passing):
            wished_ms = passing.retry_after_ms if isinstance(passing, ModelRetryable) else None
            await terminal.try_again_later(runtime, turn, ctx, passing, wished_ms)
        case Raised(error=error):
            _log.error("turn.failed", run_id=ctx.run_id, epoch=turn.epoch, error=type(error).__name__)
            await terminal.end(runtime, turn, ctx, _failure(error))


async def _stop(runtime: Runtime, turn: HostedTurn, ctx: Context, record: RunRecord, interrupt: Interrupt) -> None:
    match interrupt:
        case Interrupt.HAND_OVER:
            await terminal.hand_over(runtime, turn, ctx, record)
        case Interrupt.CANCEL:
            await terminal.end_cancelled(runtime, turn, ctx)
        case Interrupt.LOST:
            raise AttemptLost(ctx.run_id, turn.epoch, "a newer epoch owns the run, or it ended")


def _failure(error: BaseException) -> Ending:
    """The end of a run whose agent raised. Its text is kept in the record, not in the logs."""
    match error:
        case UnknownAgent():
            return Ending(State.FAILED, Reason.UNKNOWN_AGENT, str(error))
        case ModelRejected():
            return Ending(State.FAILED, Reason.MODEL_REJECTED, str(error))
        case RunnerError():
            return Ending(State.FAILED, Reason.AGENT_ERROR, str(error))
        case _:
            return Ending(State.FAILED, Reason.AGENT_ERROR, f"{type(error).__name__}: {error}"[:2_000])
