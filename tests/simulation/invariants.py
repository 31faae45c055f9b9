"""What must hold of every run that has ended, whatever befell it; each check cites the invariant it is for.

Rules of this file: it reads the servers directly, and judges only what is durable or what a reader is given.
"""

from __future__ import annotations

from typing import Any

from runner.core.run import ENDED, TRANSITIONS, Act, State
from runner.core.transcript.reducer import Fold, Message, fold_all
from runner.engine import inspection
from runner.engine.tailing import TailHub, TailItem
from runner.store import reads
from runner.store.answers import Entry
from runner.store.keys import RunKeys
from runner.store.records import RunRecord, Snapshot
from tests.simulation.scenarios import Scenario
from tests.support.simulation import World

_ACTS = {
    "claimed": Act.CLAIM,
    "lost": Act.REQUEUE,
    "handed-over": Act.REQUEUE,
    "retry": Act.REQUEUE,
    "completed": Act.COMPLETE,
    "failed": Act.FAIL,
    "cancelled": Act.CANCEL,
    "sealed": Act.SEAL,
}
_NO_ACT = frozenset({"cancel-requested", "owner-gone"})


async def check_ended(world: World, run_id: str) -> RunRecord:
    """Everything that holds of any ended run. Its record."""
    run, record = world.keys.of_run(run_id), world.record(run_id)
    entries = world.store.entries(run)
    check_i1_one_terminal_and_it_is_last(record, entries)
    check_i2_i17_seqs_and_epochs(record, entries)
    check_i3_message_is_the_fold_of_the_stream(world, run, record, entries)
    check_i7_nothing_goes_back(world, run_id)
    check_i20_reason_and_lifetimes(world, run, record)
    check_history_follows_the_table(world, run, record)
    await check_i3_i17_readers_see_the_stream(world, run_id, entries)
    return record


async def check_outcome(world: World, run_id: str, scenario: Scenario) -> RunRecord:
    """That the run ended as its scenario says, and its answer is whole, once, in order."""
    record = await check_ended(world, run_id)
    assert (record.state, record.reason) == (scenario.state, scenario.reason), record.error
    fold = _fold(record, world.store.entries(world.keys.of_run(run_id)))
    assert fold.text() == scenario.text
    if scenario.reasoning is not None:
        assert _joined(fold.message(), "reasoning") == scenario.reasoning
    check_steps_ran_once(world, run_id, scenario.steps)
    return record


def check_i1_one_terminal_and_it_is_last(record: RunRecord, entries: list[Entry]) -> None:
    assert record.state in ENDED
    assert [entry.terminal is not None for entry in entries] == [False] * (len(entries) - 1) + [True]
    terminal = entries[-1].terminal
    assert terminal is not None
    assert (terminal.state, terminal.reason, terminal.error) == (record.state, record.reason, record.error)


def check_i2_i17_seqs_and_epochs(record: RunRecord, entries: list[Entry]) -> None:
    next_seq, epoch = 1, 0
    for entry in entries:
        assert entry.last_seq - len(entry.chunks) + 1 == next_seq, "a gap, or a chunk twice"
        assert entry.epoch >= epoch, "an older attempt wrote after a newer one"
        next_seq, epoch = entry.last_seq + 1, entry.epoch
    assert record.seq == next_seq - 1
    assert record.epoch == epoch, "the last word is not the last attempt's"


def check_i3_message_is_the_fold_of_the_stream(
    world: World, run: RunKeys, record: RunRecord, entries: list[Entry]
) -> None:
    fold = _fold(record, entries)
    snapshot = world.store.run(reads.read_snapshot(run))
    assert snapshot is not None
    assert snapshot == Snapshot(seq=record.seq, fold=fold.dump())
    kinds = [chunk["type"] for entry in entries for chunk in entry.chunks]
    assert kinds.count("start") <= 1, "one assistant message"
    if "start" in kinds:
        assert entries[0].chunks[0] == {"type": "start", "messageId": record.message_id}
    last_words = {State.COMPLETED: "finish", State.CANCELLED: "abort"}.get(record.state, "error")
    assert kinds[-1] == last_words
    assert sum(kinds.count(kind) for kind in ("finish", "abort", "error")) == 1
    assert fold.closing() == [], "a part was left open"


def check_i7_nothing_goes_back(world: World, run_id: str) -> None:
    seen = world.seen[run_id]
    assert seen.progress == sorted(seen.progress)
    assert seen.seqs == sorted(seen.seqs)
    epochs = [epoch for _, epoch in seen.states]
    assert epochs == sorted(epochs)
    assert len([state for state, _ in seen.states if State(state) in ENDED]) <= 1


def check_i20_reason_and_lifetimes(world: World, run: RunKeys, record: RunRecord) -> None:
    assert record.reason
    assert record.ended_at > 0
    assert record.dispatch == ""
    for key in (run.run, run.stream, run.snapshot, run.ledger, run.children, run.events):
        left = world.store.ttl_ms(key)
        assert left == -2 or 0 < left <= world.settings.retention_ms, f"{key} stays for ever"
    assert world.store.due_at(run) is None, "the index still holds it"
    owned: Any = world.store.client.keys("*:owned:*")
    assert all(not world.store.client.sismember(name, run.run_id) for name in owned), "somebody still owns it"


def check_history_follows_the_table(world: World, run: RunKeys, record: RunRecord) -> None:
    events = world.store.run(reads.read_events(run))
    assert events[0]["what"] == "created"
    state, epoch, claims = State.QUEUED, 0, 0
    for event in events[1:]:
        what = event["what"]
        if what in _NO_ACT:
            continue
        act = _ACTS[what]
        assert (state, act) in TRANSITIONS, f"{act} of a run that is {state}"
        state = TRANSITIONS[state, act]
        claims += act is Act.CLAIM
        epoch += act is Act.CLAIM
        assert int(event["epoch"]) == epoch
    assert (state, epoch, claims) == (record.state, record.epoch, record.attempts)


async def check_i3_i17_readers_see_the_stream(world: World, run_id: str, entries: list[Entry]) -> None:
    links = world.process("reader").links
    hub = TailHub(links.store, links.keys, links.settings)
    stored = [chunk for entry in entries for chunk in entry.chunks]
    for after in {0, len(stored) // 2, len(stored)}:
        items = [item async for item in hub.tail(run_id, after=after)]
        assert [item.chunk for item in items[:-1]] == stored[after:]
        assert [item.seq for item in items] == [*range(after + 1, len(stored) + 1), len(stored)]
        assert _is_terminal(items[-1])
    await hub.aclose()
    view = await inspection.get(links, run_id)
    assert view.message == _fold(view.record, entries).message()


def check_steps_ran_once(world: World, run_id: str, steps: tuple[str, ...]) -> None:
    """A crash between an effect and its record may repeat the effect; a recorded one is never repeated."""
    for step in steps:
        events = [what for what, *of in world.journal if of == [run_id, step]]
        assert events.count("recorded") == 1
        assert events[-1] == "recorded", f"step {step} ran again after its result was recorded"


def _fold(record: RunRecord, entries: list[Entry]) -> Fold:
    return fold_all(record.message_id, [chunk for entry in entries for chunk in entry.chunks])


def _joined(message: Message, kind: str) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == kind)


def _is_terminal(item: TailItem) -> bool:
    return item.chunk is None and item.terminal is not None
