"""How attempts leave their run: ended, handed over, or given back.

Rules of this file: everything emitted is stored before the run is left; the last chunks, the terminal entry and the
message are one act; a cancel that came first wins over any other end.
"""

from __future__ import annotations

from runner.core.recovery.backoff import provider_delay_ms
from runner.core.recovery.evaluate import CANCELLED, Attempt, Seal, after_loss
from runner.core.run import Ending, State
from runner.core.transcript import chunk as chunks
from runner.core.transcript.chunk import Chunk
from runner.core.transcript.reducer import Fold
from runner.dispatch import Ticket
from runner.engine.context import Context
from runner.engine.hosting import HostedTurn, Interrupt
from runner.engine.rebuild import rebuild
from runner.engine.runtime import Links, Runtime
from runner.errors import AttemptLost, RunnerError
from runner.store import calls, reads
from runner.store.answers import Answer, Batch, Code
from runner.store.keys import RunKeys
from runner.store.records import RunRecord, Snapshot
from runner.telemetry import log

_log = log("terminal")


async def end(runtime: Runtime, turn: HostedTurn, ctx: Context, ending: Ending, *, finish_reason: str = "stop") -> None:
    """Ends the run from inside. Raises AttemptLost when it is no longer this attempt's to end."""
    try:
        await ctx.writer.flush()
        code = await _finish(runtime, turn, ctx.fold, ctx.writer.last_seq, ending, finish_reason)
    except AttemptLost:
        if turn.interrupt is not Interrupt.CANCEL:
            raise
        code = Code.CANCELLED
    if code is Code.CANCELLED:
        await end_cancelled(runtime, turn, ctx)
    elif code is not Code.OK:
        raise AttemptLost(ctx.run_id, turn.epoch, code.name.lower())


async def end_cancelled(runtime: Runtime, turn: HostedTurn, ctx: Context) -> None:
    """Ends the run as cancelled, with what was stored: chunks that the cancel refused are not part of the answer."""
    await _end_as_stored(runtime, turn, ctx, CANCELLED)


async def _end_as_stored(runtime: Runtime, turn: HostedTurn, ctx: Context, ending: Ending) -> None:
    ctx.writer.fail(AttemptLost(ctx.run_id, turn.epoch, "it ends"))
    record = await runtime.store.run(reads.read_run(turn.run))
    assert record is not None
    fold = await rebuild(runtime.store, turn.run, record)
    code = await _finish(runtime, turn, fold, record.seq, ending, "stop")
    if code is Code.CANCELLED:
        await end_cancelled(runtime, turn, ctx)
    elif code is not Code.OK:
        raise AttemptLost(ctx.run_id, turn.epoch, code.name.lower())


async def end_unclaimed(links: Links, run: RunKeys, epoch: int, ending: Ending = CANCELLED) -> Answer:
    """Ends a queued run that nobody claims."""
    return await end_from_outside(links, run, epoch, ending, by="canceller")


async def end_from_outside(
    links: Links, run: RunKeys, epoch: int, ending: Ending, *, by: str, judged_progress: int | None = None
) -> Answer:
    """Ends a run that nobody runs, with what is stored of it."""
    record = await links.store.run(reads.read_run(run))
    if record is None:
        return Answer(Code.UNKNOWN)
    fold = await rebuild(links.store, run, record)
    closing = closing_of(fold, record.seq, ending, judged_progress=judged_progress)
    retention_ms = links.settings.retention_ms
    finish = calls.finish(run, epoch, ending, by=by, owner=record.owner, retention_ms=retention_ms, closing=closing)
    answer = await links.store.run(finish)
    _log.info("run.ended", run_id=run.run_id, by=by, reason=ending.reason, answer=answer.code.name)
    return answer


async def hand_over(runtime: Runtime, turn: HostedTurn, ctx: Context, record: RunRecord) -> None:
    """Gives the run back to the head of the queue, because this process stops."""
    if not await _flushed(turn, ctx):
        await end_cancelled(runtime, turn, ctx)
        return
    ctx.writer.fail(AttemptLost(ctx.run_id, turn.epoch, "handed over"))
    handed = calls.hand_over(
        turn.run,
        turn.epoch,
        owner=turn.owner,
        handovers=record.handovers + 1,
        grace_ms=runtime.settings.dispatch_grace_ms,
    )
    code = await runtime.store.run(handed)
    _log.info("turn.handed-over", run_id=ctx.run_id, epoch=turn.epoch, answer=code.name.lower())
    if code is Code.OK:
        runtime.requeue.offer(Ticket(ctx.run_id, turn.epoch))
    elif code is Code.CANCELLED:
        await end_cancelled(runtime, turn, ctx)


async def try_again_later(
    runtime: Runtime, turn: HostedTurn, ctx: Context, why: RunnerError, wished_ms: int | None
) -> None:
    """Gives the run back to be tried after a delay; seals it when its budgets are spent. No worker was lost."""
    if not await _flushed(turn, ctx):
        await end_cancelled(runtime, turn, ctx)
        return
    ctx.writer.fail(AttemptLost(ctx.run_id, turn.epoch, "it is given back"))
    record = await runtime.store.run(reads.read_run(turn.run))
    now_ms = await runtime.store.run(reads.read_time())
    assert record is not None
    deadlines = runtime.deadlines(await runtime.store.run(reads.read_fresh_from(turn.run)))
    match after_loss(record.facts(), now_ms, deadlines, strike=False):
        case Seal(ending=ending):
            await _end_as_stored(runtime, turn, ctx, Ending(ending.state, ending.reason, str(why)))
        case Attempt(incident=incident):
            delay_ms = provider_delay_ms(incident.attempt, wished_ms)
            _log.warning("turn.retry", run_id=ctx.run_id, epoch=turn.epoch, delay_ms=delay_ms, why=type(why).__name__)
            given_back = calls.give_back(
                turn.run, turn.epoch, owner=turn.owner, incident=incident, why=type(why).__name__, delay_ms=delay_ms
            )
            if await runtime.store.run(given_back) is Code.CANCELLED:
                await end_cancelled(runtime, turn, ctx)


async def _flushed(turn: HostedTurn, ctx: Context) -> bool:
    """Stores what was emitted; False when a cancel refused it. What the server itself would not take is given out anew
    by the next attempt. Raises AttemptLost."""
    try:
        await ctx.writer.flush()
    except AttemptLost:
        if turn.interrupt is not Interrupt.CANCEL:
            raise
        return False
    except RunnerError:
        return True
    return True


async def _finish(
    runtime: Runtime, turn: HostedTurn, fold: Fold, stored_seq: int, ending: Ending, finish_reason: str
) -> Code:
    closing = closing_of(fold, stored_seq, ending, finish_reason=finish_reason)
    finish = calls.finish(
        turn.run,
        turn.epoch,
        ending,
        by="owner",
        owner=turn.owner,
        retention_ms=runtime.settings.retention_ms,
        closing=closing,
    )
    answer = await runtime.store.run(finish)
    _log.info("run.ended", run_id=turn.run.run_id, epoch=turn.epoch, reason=ending.reason, answer=answer.code.name)
    return answer.code


def closing_of(
    fold: Fold, stored_seq: int, ending: Ending, *, finish_reason: str = "stop", judged_progress: int | None = None
) -> calls.Closing:
    """The last chunks of a run that ends after `stored_seq`, applied to its fold, with the whole message."""
    last = [*fold.closing(), *_last_words(fold, ending, finish_reason)]
    for chunk in last:
        fold.apply(chunk)
    last_seq = stored_seq + len(last)
    batch = Batch(stored_seq + 1, last_seq, chunks.join([chunks.encode(chunk) for chunk in last]), 0)
    snapshot = Snapshot(seq=last_seq, fold=fold.dump()).to_json()
    return calls.Closing(batch, snapshot, judged_progress)


def _last_words(fold: Fold, ending: Ending, finish_reason: str) -> list[Chunk]:
    match ending.state:
        case State.COMPLETED:
            open_step = [chunks.finish_step()] if fold.in_step else []
            return [*open_step, chunks.finish(finish_reason)]
        case State.CANCELLED:
            return [chunks.abort()]
        case _:
            return [chunks.error(ending.reason)]
