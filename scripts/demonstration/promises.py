"""What was promised, beside what was seen: the judgement at the end, for people and as JSON.

Rule of this file: pure; everything is judged from what the readers were given and what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Any

from demonstration.turn import Reading, Witnessed
from runner.core.run import State
from runner.core.transcript.reducer import fold_all


@dataclass(frozen=True, slots=True)
class Judged:
    """One promise, and what was seen of it."""

    promise: str
    seen: str
    kept: bool


def duplicates(reading: Reading) -> int:
    """How many chunks were given more than once."""
    return len(reading.seqs) - len(set(reading.seqs))


def missing(reading: Reading) -> int:
    """How many chunks between the first of the run and its last were not given."""
    return len(set(range(1, max(reading.seqs, default=0) + 1)) - set(reading.seqs))


def judge(number: Signals, turn: Witnessed) -> list[Judged]:
    """Every promise about one interrupted turn."""
    live, record = turn.live, turn.view.record
    state = live.terminal.state if live.terminal is not None else "no end at all"
    folded = fold_all(record.message_id, live.chunks)
    same_replay = turn.replay.chunks == live.chunks and turn.replay.seqs == live.seqs
    last_seq = max(live.seqs, default=0)
    return [
        Judged("the answer comes to its end", f"{state}", state == State.COMPLETED),
        Judged("no chunk arrives twice", f"{len(live.seqs)} chunks, {duplicates(live)} twice", not duplicates(live)),
        Judged(
            "no chunk is missing",
            f"{missing(live)} missing; the last is number {last_seq}",
            missing(live) == 0 and last_seq == record.seq,
        ),
        Judged("they arrive in order", "yes" if _in_order(live) else "no", _in_order(live)),
        Judged(
            "the stored message is what the reader saw",
            f"{len(folded.text())} characters",
            folded.message() == turn.view.message and folded.text() == live.text,
        ),
        Judged("a late reader sees the same, chunk by chunk", "yes" if same_replay else "no", same_replay),
        *_about_attempts(number, turn),
    ]


def _in_order(reading: Reading) -> bool:
    return reading.seqs == sorted(reading.seqs)


def _about_attempts(number: Signals, turn: Witnessed) -> list[Judged]:
    record = turn.view.record
    went_on = Judged(
        "the text goes on where it stopped",
        f"{turn.strike_to_text_ms} ms after {number.name}, {turn.silence_ms} ms without text",
        turn.silence_ms >= 0,
    )
    if number is Signals.SIGKILL:
        is_right = record.attempts == 2 and record.handovers == 0 and record.strikes == 1
        seen = f"{record.attempts} attempts, {record.strikes} lost worker"
        return [went_on, Judged("one loss, one more attempt", seen, is_right)]
    is_right = record.attempts == 2 and record.handovers == 1 and record.strikes == 0 and record.attempt == 1
    seen = f"{record.attempts} attempts, {record.handovers} hand-over, {record.strikes} lost workers"
    return [went_on, Judged("a planned stop is no failure", seen, is_right)]


def summary(model: str, turns: Sequence[tuple[Signals, Witnessed]], broken: Sequence[str]) -> dict[str, Any]:
    """The last line: totals of all turns, then each turn. `broken` names the promises that were not kept."""
    seen = dict(turns)
    killed, stopped = seen.get(Signals.SIGKILL), seen.get(Signals.SIGTERM)
    return {
        "status": "failed" if broken else "ok",
        "model": model,
        "chunks": sum(len(turn.live.seqs) for turn in seen.values()),
        "duplicates": sum(duplicates(turn.live) for turn in seen.values()),
        "missing": sum(missing(turn.live) for turn in seen.values()),
        "attempts": sum(turn.view.record.attempts for turn in seen.values()),
        "kill_to_next_chunk_ms": None if killed is None else killed.strike_to_text_ms,
        "handover_gap_ms": None if stopped is None else stopped.silence_ms,
        "broken": list(broken),
        "turns": [_row(number, turn) for number, turn in turns],
    }


def _row(number: Signals, turn: Witnessed) -> dict[str, Any]:
    record = turn.view.record
    return {
        "signal": number.name,
        "state": record.state,
        "chunks": len(turn.live.seqs),
        "attempts": record.attempts,
        "handovers": record.handovers,
        "lost_workers": record.strikes,
        "strike_to_text_ms": turn.strike_to_text_ms,
        "silence_ms": turn.silence_ms,
        "characters": len(turn.live.text),
    }
