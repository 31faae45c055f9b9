"""The append path: what shares a batch and a trip, what waits, and how each turn hears of its own trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runner.engine.writer import BATCHES_PER_TRIP, WriterLimits
from runner.errors import AttemptLost, ServerRefused, StreamGap
from runner.store import calls
from runner.store.answers import Code
from tests.engine.writing import Desk, delta, put
from tests.support.faults import Fault, Plan
from tests.support.simulation import at_call
from tests.support.virtual_time import pass_ms, run_virtual


def at_desk(
    program: Callable[[Desk], Awaitable[None]], limits: WriterLimits | None = None, plan: Plan | None = None
) -> None:
    async def main() -> None:
        desk = Desk(limits or WriterLimits(), plan)
        try:
            await program(desk)
        finally:
            await desk.aclose()

    run_virtual(main())


def test_what_collects_while_a_call_is_under_way_goes_as_one_batch() -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()

        async def meanwhile() -> None:
            await put(writer, "b", "c", "d")

        desk.line.plan.hooks[1] = meanwhile
        await put(writer, "a")
        await writer.flush()
        await writer.flush()  # of what came while the first flush waited
        assert desk.batches() == [["a"], ["b", "c", "d"]]
        assert desk.line.log == ["append", "append"]

    at_desk(program)


def test_seqs_are_given_out_in_order_before_anything_is_stored() -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()
        assert [await writer.append(delta("x"), credited=True) for _ in range(3)] == [1, 2, 3]
        assert desk.batches() == []
        await writer.flush()
        assert desk.world.record(desk.run.run_id).seq == 3
        assert desk.world.record(desk.run.run_id).progress == 3

    at_desk(program)


def test_a_batch_is_capped_by_chunks_and_a_trip_by_batches() -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()
        count = 2 * BATCHES_PER_TRIP + 3
        await put(writer, *(str(number) for number in range(count)))
        await writer.flush()
        assert [len(batch) for batch in desk.batches()] == [2] * (count // 2) + [1]
        assert desk.texts() == [str(number) for number in range(count)]
        assert len(desk.line.log) == 2

    at_desk(program, WriterLimits(batch_chunks=2))


def test_a_batch_is_capped_by_bytes_and_a_larger_chunk_goes_alone() -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()
        await put(writer, "a" * 100, "b" * 100, "c" * 500, "d", "e")
        await writer.flush()
        assert [[text[0] for text in batch] for batch in desk.batches()] == [["a", "b"], ["c"], ["d", "e"]]

    at_desk(program, WriterLimits(batch_bytes=300))


def test_a_window_collects_what_comes_within_it() -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()
        for text in ("a", "b", "c", "d"):
            await put(writer, text)
            await pass_ms(20)
        await writer.flush()
        assert desk.batches() == [["a", "b", "c"], ["d"]]

    at_desk(program, WriterLimits(window_ms=50))


def test_the_batches_of_many_turns_share_a_trip() -> None:
    async def program(desk: Desk) -> None:
        one, other = desk.writer(), desk.writer(desk.other_run)
        await put(one, "a", "b")
        await put(other, "x")
        await asyncio.gather(one.flush(), other.flush())
        assert desk.line.log == ["append"]
        assert (desk.batches(), desk.batches(desk.other_run)) == ([["a", "b"]], [["x"]])

    at_desk(program)


def test_a_full_buffer_makes_the_turn_wait_until_the_server_takes_some() -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()
        size = len(delta("0" * 100))
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(put(writer, *("0" * 100 for _ in range(20))))
            await desk.line.stalled.wait()
            await pass_ms(1_000)
            assert not writing.done()
            assert writer.last_seq * size <= 1_000 + 2 * size, "no more is taken than the buffer holds, and one"
            desk.line.wake()
        await writer.flush()
        assert len(desk.texts()) == 20

    at_desk(program, WriterLimits(batch_chunks=1, buffer_bytes=1_000), at_call(1, Fault.STALL_BEFORE))


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_HALFWAY, Fault.LOSE_REPLY], ids=lambda f: f.name)
def test_a_lost_connection_stores_nothing_twice(fault: Fault) -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()
        await put(writer, "a", "b", "c", "d")
        await writer.flush()
        assert desk.batches() == [["a"], ["b"], ["c"], ["d"]]
        assert desk.told == []
        assert desk.line.hits[fault] == 1

    at_desk(program, WriterLimits(batch_chunks=1), at_call(1, fault))


def test_what_the_server_refuses_of_one_turn_does_not_touch_the_other() -> None:
    """The stream of the other run holds something else: its append is an error of the server, not an answer."""

    async def program(desk: Desk) -> None:
        desk.world.store.client.set(desk.other_run.stream, "not a stream")
        one, other = desk.writer(), desk.writer(desk.other_run)
        await put(other, "x", "y")
        await put(one, "a", "b")
        await one.flush()
        with pytest.raises(ServerRefused):
            await other.flush()
        with pytest.raises(ServerRefused):
            await put(other, "z")
        assert desk.told == [None], "told once, and that it is not the attempt's fault"
        await put(one, "c")
        await one.flush()
        assert desk.texts() == ["a", "b", "c"]

    at_desk(program, WriterLimits(batch_chunks=1))


def test_a_server_that_lost_data_is_noticed() -> None:
    """I17: the gap is not papered over; the attempt must rebuild."""

    async def program(desk: Desk) -> None:
        writer = desk.writer()
        await put(writer, "a", "b")
        await writer.flush()
        desk.world.store.client.hset(desk.run.run, "seq", 1)
        await put(writer, "c")
        with pytest.raises(StreamGap) as gap:
            await writer.flush()
        assert (gap.value.expected_seq, gap.value.found_seq) == (2, 1)
        assert desk.told == [None]

    at_desk(program)


def test_a_fenced_writer_is_told_once_and_writes_no_more() -> None:
    """I2."""

    async def program(desk: Desk) -> None:
        writer = desk.writer()
        await put(writer, "a")
        await writer.flush()
        desk.world.store.client.hset(desk.run.run, "epoch", 2)
        await put(writer, "b", "c")
        with pytest.raises(AttemptLost):
            await writer.flush()
        with pytest.raises(AttemptLost):
            await put(writer, "d")
        with pytest.raises(AttemptLost):
            await writer.flush()
        assert desk.told == [Code.FENCED]
        assert desk.batches() == [["a"]]

    at_desk(program, WriterLimits(batch_chunks=1))


def test_a_cancel_is_heard_of_with_the_next_append() -> None:
    """I19."""

    async def program(desk: Desk) -> None:
        desk.world.store.run(calls.cancel(desk.run))
        writer = desk.writer()
        await put(writer, "a")
        with pytest.raises(AttemptLost):
            await writer.flush()
        assert desk.told == [Code.CANCELLED]
        assert desk.batches() == []

    at_desk(program)


def test_a_closed_pipe_begins_anew_with_the_next_chunk() -> None:
    async def program(desk: Desk) -> None:
        writer = desk.writer()
        await desk.pipe.aclose()
        await put(writer, "a")
        await writer.flush()
        await desk.pipe.aclose()
        assert desk.batches() == [["a"]]

    at_desk(program)
