"""The turns that this process runs right now: their heartbeats, and how each is told to stop.

Rules of this file: a turn is interrupted for one typed reason, the strongest wins; a hand-over waits for the next
boundary and then for a grace, everything else stops the turn at once. Heartbeats are sent from another thread, so only
plain reads of a copied list happen there.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from runner.store import calls
from runner.store.answers import Code
from runner.store.executor import SyncExecutor
from runner.store.keys import Keys, RunKeys

UNWIND_S = 0.5
"""How long a cancelled agent may take to unwind before its turn is taken away."""
LAST_WORD_S = 2.0
"""How long the server may take to accept the hand-overs before the process leaves without its answer."""


class Interrupt(IntEnum):
    """Why a turn is stopped from outside, weakest first."""

    HAND_OVER = 1
    CANCEL = 2
    LOST = 3


class HostedTurn:
    """One attempt that runs in this process."""

    def __init__(self, run: RunKeys, owner: str) -> None:
        self.run, self.owner = run, owner
        self.epoch = 0
        self.token = secrets.token_hex(8)
        self.interrupt: Interrupt | None = None
        self.credits = 0
        self._work: asyncio.Task[object] | None = None
        self._ended = asyncio.Event()
        self._abandoned = asyncio.Event()

    def begin(self, work: asyncio.Task[object]) -> None:
        """The agent's own part starts; an interrupt that came before stops it at once."""
        self._work = work
        if self.interrupt is not None:
            work.cancel()

    def stop(self, interrupt: Interrupt) -> None:
        """Interrupts the turn. A hand-over only marks it; see `at_boundary` and `force`. Anything else is forced, and
        an agent that ignores it is abandoned."""
        if self.interrupt is None or interrupt > self.interrupt:
            self.interrupt = interrupt
        if interrupt is not Interrupt.HAND_OVER:
            self.force()
            asyncio.get_running_loop().call_later(UNWIND_S, self.abandon)

    def force(self) -> None:
        """Cancels the agent's part, wherever it is."""
        if self._work is not None:
            self._work.cancel()

    def abandon(self) -> None:
        """Gives up waiting for an agent that ignores its cancellation; its writes are refused from now on."""
        self._abandoned.set()

    async def work_is_over(self, work: asyncio.Task[object]) -> bool:
        """Waits for the agent's part. False when it was abandoned instead."""
        abandoned = asyncio.ensure_future(self._abandoned.wait())
        await asyncio.wait({work, abandoned}, return_when=asyncio.FIRST_COMPLETED)
        abandoned.cancel()
        return work.done()

    async def at_boundary(self) -> None:
        """Called by the turn where it may be stopped: raises CancelledError when it was told to."""
        if self.interrupt is not None:
            await asyncio.sleep(0)  # an agent that swallows this in a loop must not stop all other turns
            raise asyncio.CancelledError(self.interrupt.name)

    def answered(self, code: Code) -> None:
        """Takes what the server says of this attempt."""
        if code is Code.CANCELLED:
            self.stop(Interrupt.CANCEL)
        elif code is not Code.OK:
            self.stop(Interrupt.LOST)

    def refused(self, code: Code | None) -> None:
        """Takes that nothing more can be written; without a code the trouble is not the attempt's."""
        if code is None:
            self.force()
        else:
            self.answered(code)

    def end(self) -> None:
        """The attempt is over, its run given away or ended."""
        self._ended.set()

    async def ended(self) -> None:
        """Returns when the attempt is over."""
        await self._ended.wait()


class Hosted:
    """All turns of this process."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._turns: set[HostedTurn] = set()
        self.stopping = asyncio.Event()
        """Set when the process stops: new turns are handed over as soon as they are claimed."""

    def __len__(self) -> int:
        return len(self._turns)

    @contextmanager
    def hosting(self, turn: HostedTurn) -> Iterator[None]:
        """Counts a turn as hosted while it runs. A run may be here twice: a stalled attempt, and the one after it."""
        self._turns.add(turn)
        if self.stopping.is_set():
            turn.stop(Interrupt.HAND_OVER)
        try:
            yield
        finally:
            self._turns.discard(turn)
            turn.end()

    def cancel(self, run_id: str) -> bool:
        """Stops a hosted run as cancelled; False when it is not here."""
        turns = [turn for turn in self._turns if turn.run.run_id == run_id]
        for turn in turns:
            turn.stop(Interrupt.CANCEL)
        return bool(turns)

    async def hand_over(self, *, grace_s: float) -> int:
        """Stops every turn for a hand-over: at its boundary within the grace, forced after it, taken away from an
        agent that ignores that. Returns how many could not be given away (the server did not answer in time)."""
        self.stopping.set()
        turns = list(self._turns)
        for turn in turns:
            turn.stop(Interrupt.HAND_OVER)
        waits = {asyncio.ensure_future(turn.ended()) for turn in turns}
        for patience_s, then in ((grace_s, HostedTurn.force), (UNWIND_S, HostedTurn.abandon), (LAST_WORD_S, None)):
            if waits:
                _, waits = await asyncio.wait(waits, timeout=patience_s)
            for turn in turns if then else ():
                then(turn)  # type: ignore[misc]
        for wait in waits:
            wait.cancel()
        return len(waits)

    def beat(self, store: SyncExecutor, *, lease_ms: int) -> list[tuple[HostedTurn, Code]]:
        """Renews every lease, one call per partition in one trip. Returns the turns that must be told something."""
        turns = [turn for turn in tuple(self._turns) if turn.epoch]
        by_partition: dict[int, list[HostedTurn]] = {}
        for turn in turns:
            by_partition.setdefault(turn.run.partition, []).append(turn)
        groups = list(by_partition.values())
        beats = [calls.beat(group[0].run.due, [_with_credits(t) for t in group], lease_ms=lease_ms) for group in groups]
        answers = store.run_many(beats) if beats else []
        told = [pair for group, codes in zip(groups, answers, strict=True) for pair in zip(group, codes, strict=True)]
        return [(turn, code) for turn, code in told if code is not Code.OK]


def _with_credits(turn: HostedTurn) -> tuple[RunKeys, int, int]:
    due, turn.credits = turn.credits, 0
    return turn.run, turn.epoch, due
