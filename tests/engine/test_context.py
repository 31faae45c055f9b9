"""What a turn is given: what it may emit, how much, and what it gets back from its steps and its stash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runner.agent import TurnContext
from runner.core.run import Reason, State
from runner.errors import InvalidInput, RunnerError, TooLarge
from runner.store.records import RunRecord
from tests.simulation.invariants import check_ended
from tests.simulation.scenarios import world_of
from tests.support.faults import Fault
from tests.support.simulation import World, at_call
from tests.support.virtual_time import run_virtual

Turn = Callable[[TurnContext], Awaitable[None]]


def run_turn(turn: Turn, *, fails_at: int | None = None, **settings: int) -> tuple[RunRecord, list[dict[str, Any]]]:
    """Runs that turn to its end (its first worker dies at call `fails_at`): its record and its chunks."""

    async def main() -> tuple[RunRecord, list[dict[str, Any]]]:
        world = world_of(None, **settings)
        try:
            return await _run(world, turn, fails_at)
        finally:
            await world.aclose()

    return run_virtual(main())


async def _run(world: World, turn: Turn, fails_at: int | None) -> tuple[RunRecord, list[dict[str, Any]]]:
    async def written(ctx: TurnContext) -> None:
        await turn(ctx)

    world.agents.turn("written")(written)
    run_id = await world.submit("written", message="hello", input={"n": 1})
    await world.settle(run_id, worker=world.worker(at_call(fails_at, Fault.DIE_BEFORE) if fails_at else None))
    entries = world.store.entries(world.keys.of_run(run_id))
    return await check_ended(world, run_id), [chunk for entry in entries for chunk in entry.chunks]


def refused(turn: Turn, kind: type[RunnerError], **settings: int) -> RunnerError:
    """What the turn is refused; it goes on after that, and ends well."""
    seen: list[RunnerError] = []

    async def tries(ctx: TurnContext) -> None:
        await ctx.say("before ")
        with pytest.raises(kind) as why:
            await turn(ctx)
        seen.append(why.value)
        await ctx.say("after")

    record, chunks = run_turn(tries, **settings)
    assert record.state is State.COMPLETED
    assert "".join(chunk.get("delta", "") for chunk in chunks) == "before after", "nothing of it was stored"
    return seen[0]


LIMIT = 400


@pytest.mark.parametrize("limit", ["chunk", "delta", "step", "stash"])
def test_what_is_too_large_is_refused_whole(limit: str) -> None:
    big = "x" * LIMIT

    async def turn(ctx: TurnContext) -> None:
        match limit:
            case "chunk":
                await ctx.emit({"type": "data-big", "data": big})
            case "delta":
                await ctx.say(big)
            case "step":
                await ctx.step("big", lambda: big)
            case _:
                await ctx.stash(big)

    why = refused(turn, TooLarge, chunk_bytes=LIMIT, memo_bytes=LIMIT)
    assert isinstance(why, TooLarge)
    assert why.size > why.limit == LIMIT


def test_what_just_fits_is_taken() -> None:
    data = "x" * (LIMIT - len('{"type":"data-big","data":""}'))

    async def turn(ctx: TurnContext) -> None:
        await ctx.emit({"type": "data-big", "data": data})

    _, chunks = run_turn(turn, chunk_bytes=LIMIT)
    assert {"type": "data-big", "data": data} in chunks


@pytest.mark.parametrize("chunk", [None, "text", 5, {}, {"type": 5}, ["type"]], ids=repr)
def test_what_is_no_chunk_is_refused(chunk: Any) -> None:
    async def turn(ctx: TurnContext) -> None:
        await ctx.emit(chunk)

    assert "type" in str(refused(turn, InvalidInput))


@pytest.mark.parametrize("value", [object(), {1, object()}, {"deep": [object()]}], ids=["object", "set", "nested"])
def test_what_is_no_json_is_refused(value: Any) -> None:
    async def emits(ctx: TurnContext) -> None:
        await ctx.emit({"type": "data-x", "data": value})

    async def steps(ctx: TurnContext) -> None:
        await ctx.step("x", lambda: value)

    async def stashes(ctx: TurnContext) -> None:
        await ctx.stash(value)

    for turn in (emits, steps, stashes):
        assert "JSON" in str(refused(turn, InvalidInput))


def test_a_refusal_that_nobody_catches_fails_the_run() -> None:
    async def turn(ctx: TurnContext) -> None:
        await ctx.emit({})

    record, chunks = run_turn(turn)
    assert (record.state, record.reason) == (State.FAILED, Reason.AGENT_ERROR)
    assert "type" in record.error
    assert chunks[-1] == {"type": "error", "errorText": Reason.AGENT_ERROR}


def test_a_chunk_is_as_it_was_when_it_was_emitted() -> None:
    """I3: the stored message is what the stream says, whatever the author does with the chunk afterwards."""

    async def turn(ctx: TurnContext) -> None:
        numbers: list[int] = []
        for number in range(3):
            numbers.append(number)
            await ctx.emit({"type": "data-count", "data": numbers})

    _, chunks = run_turn(turn)
    assert [chunk["data"] for chunk in chunks if chunk["type"] == "data-count"] == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), (1, 2), {1: "a"}], ids=repr)
def test_the_message_holds_what_json_makes_of_a_value(value: Any) -> None:
    """I3, for values that JSON writes as something else; the fold of the stream is compared with what was stored."""

    async def turn(ctx: TurnContext) -> None:
        await ctx.emit({"type": "data-x", "data": value})

    assert run_turn(turn)[0].state is State.COMPLETED


def test_half_a_character_survives_and_does_not_keep_the_run_from_ending() -> None:
    async def turn(ctx: TurnContext) -> None:
        await ctx.say("cut \ud83d")
        await ctx.flush()
        await ctx.say("\ude00 joined")

    record, chunks = run_turn(turn)
    assert record.state is State.COMPLETED
    assert [chunk["delta"] for chunk in chunks if "delta" in chunk] == ["cut \ud83d", "\ude00 joined"]


@pytest.mark.parametrize("fails_at", [None, 2, 3, 4, 5])
def test_steps_and_stash_come_back_as_json_in_every_attempt(fails_at: int | None) -> None:
    seen: list[Any] = []

    async def turn(ctx: TurnContext) -> None:
        async def fetch() -> dict[str, Any]:
            return {"ids": (1, 2), "none": None}

        seen.append(await ctx.step("fetch", fetch))
        if ctx.stashed is None:
            await ctx.stash({"at": 1})
            await ctx.stash({"at": 2})
        seen.append(ctx.stashed)

    record, _ = run_turn(turn, fails_at=fails_at)
    assert record.state is State.COMPLETED
    assert all(value in ({"ids": [1, 2], "none": None}, {"at": 1}, {"at": 2}) for value in seen)
    assert seen[-1] == {"at": 2} or fails_at is not None


def test_a_turn_knows_its_run_and_what_was_asked() -> None:
    seen: list[Any] = []

    async def turn(ctx: TurnContext) -> None:
        seen.append((ctx.run_id, ctx.attempt, ctx.input, ctx.message, ctx.text, ctx.partial["role"]))
        await ctx.say("some ")
        await ctx.flush()

    record, _ = run_turn(turn, fails_at=3)
    asked = ({"n": 1}, "hello")
    assert seen == [(record.run_id, 1, *asked, "", "assistant"), (record.run_id, 2, *asked, "some ", "assistant")]


def test_a_tool_result_is_stored_before_the_turn_goes_on() -> None:
    """A milestone waits for its acknowledgement; a word does not."""
    stored: list[int] = []

    async def main() -> None:
        world = world_of()

        async def turn(ctx: TurnContext) -> None:
            await ctx.say("a word")
            stored.append(world.record(ctx.run_id).seq)
            seq = await ctx.emit({"type": "tool-output-available", "toolCallId": "c", "output": 1})
            stored.append(world.record(ctx.run_id).seq - seq)

        try:
            world.agents.turn("turn")(turn)
            run_id = await world.submit("turn")
            await world.settle(run_id)
        finally:
            await world.aclose()

    run_virtual(main())
    assert stored == [0, 0]
