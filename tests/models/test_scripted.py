"""The scripted model: exact, continuing from any cut, and stopping where a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.turn.round import RoundEnd, RoundRequest
from runner.errors import ModelInterrupted, ModelRejected
from runner.models.scripted import (
    Cut,
    Fail,
    Finish,
    Pause,
    Say,
    ScriptedModel,
    Silence,
    Step,
    Think,
    deltas,
    round_number,
)
from tests.models.reading import Answer, Streaming, asked, read

STORY = "Once upon a time\n\nthere  was a run. "


def play(*steps: Step, request: RoundRequest | None = None, **options: Any) -> Answer:
    return asyncio.run(read(ScriptedModel(steps, **options), request or asked()))


def test_it_gives_parts_then_one_end() -> None:
    answer = play(Think("Hm, well"), Say("Red is", words_per_delta=2), Finish("length", output_tokens=3))
    assert answer.chunks == [
        {"type": "reasoning-start", "id": "r1:0"},
        {"type": "reasoning-delta", "id": "r1:0", "delta": "Hm,"},
        {"type": "reasoning-delta", "id": "r1:0", "delta": " well"},
        {"type": "reasoning-end", "id": "r1:0"},
        {"type": "text-start", "id": "r1:1"},
        {"type": "text-delta", "id": "r1:1", "delta": "Red is"},
        {"type": "text-end", "id": "r1:1"},
    ]
    assert answer.end == RoundEnd("length", "length", capped=True, output_tokens=3)


def test_a_script_that_just_ends_finishes_with_stop() -> None:
    assert play(Say("x")).end == RoundEnd("stop", "stop")


def test_a_finish_without_a_reason_is_incomplete() -> None:
    assert play(Finish("other", complete=False)).end == RoundEnd("other", None, complete=False)


@given(st.text(), st.integers(1, 5))
def test_deltas_join_to_the_text(text: str, words: int) -> None:
    assert "".join(deltas(text, words)) == text


@given(st.integers(0, len(STORY)), st.integers(1, 3))
def test_it_gives_exactly_the_rest_of_a_partial_cut_anywhere(cut: int, words: int) -> None:
    answer = play(Say(STORY[:9], words), Say(STORY[9:], words), request=asked(partial=STORY[:cut]))
    assert STORY[:cut] + answer.text() == STORY
    assert answer.end is not None


def test_a_partial_over_several_parts_and_steps_is_one_text() -> None:
    more = ({"type": "text", "text": "upon ", "state": "done"}, {"type": "step-start"}, {"type": "text", "text": "a "})
    assert play(Say(STORY), request=asked("?", "Once ", *more)).text() == STORY.removeprefix("Once upon a ")


def test_a_held_thought_is_not_repeated() -> None:
    answer = play(Think("Let me see"), Say("Hi"), request=asked("?", "", {"type": "reasoning", "text": "Let me"}))
    assert (answer.text("reasoning"), answer.text()) == (" see", "Hi")


def test_the_text_of_an_earlier_round_does_not_count() -> None:
    called = {"type": "tool-x", "toolCallId": "c1", "state": "output-available", "output": 1}
    answer = play(Say("Once"), request=asked("?", "Once", called, {"type": "step-start"}))
    assert answer.text() == "Once"


@pytest.mark.parametrize("options", [{"continues_partial": False}, {}])
def test_it_can_begin_anew(options: dict[str, bool]) -> None:
    say = Say(STORY, continue_partial=bool(options))
    assert play(say, request=asked(partial="Once "), **options).text() == STORY


def test_a_partial_of_another_script_is_left_alone() -> None:
    assert play(Say("Once"), request=asked(partial="Twice")).text() == "Once"


def test_chunks_are_given_out_as_they_are() -> None:
    chunk = {"type": "data-x", "data": {"a": [1]}}
    assert play(chunk, Pause(0)).chunks == [chunk]


def test_cut_and_fail_leave_an_open_part_open() -> None:
    cut = play(Say("ab", close=False), Cut())
    assert (cut.types(), cut.end, cut.error) == (["text-start", "text-delta"], None, None)
    failed = play(Say("ab", close=False), Fail(ModelInterrupted("gone", 5)))
    assert failed.types() == cut.types()
    assert isinstance(failed.error, ModelInterrupted)
    assert failed.error.retry_after_ms == 5


@pytest.mark.parametrize("strike", [Fail(ModelInterrupted("gone"), times=1), Cut(times=1)])
def test_a_limited_step_strikes_once(strike: Fail | Cut) -> None:
    model = ScriptedModel([Say("a", close=False), strike, Say("b")])

    async def twice() -> tuple[Answer, Answer]:
        return await read(model, asked()), await read(model, asked(partial="a"))

    first, second = asyncio.run(twice())
    assert (first.text(), first.end) == ("a", None)
    assert (second.text(), second.error) == ("b", None)


def test_functions_stop_it_exactly_where_they_stand() -> None:
    async def scenario() -> list[str]:
        reached, go = asyncio.Event(), asyncio.Event()
        reading = asyncio.create_task(read(ScriptedModel([Say("a"), reached.set, go.wait, Say("b")]), asked()))
        await asyncio.wait_for(reached.wait(), 10)
        assert not reading.done()
        go.set()
        return (await asyncio.wait_for(reading, 10)).types()

    assert asyncio.run(scenario()) == ["text-start", "text-delta", "text-end"] * 2


def test_silence_lasts_until_the_call_is_cancelled() -> None:
    async def scenario() -> None:
        reached = asyncio.Event()
        reading = asyncio.create_task(read(ScriptedModel([reached.set, Silence()]), asked()))
        await asyncio.wait_for(reached.wait(), 10)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(scenario())


def test_each_round_has_its_script() -> None:
    model = ScriptedModel(rounds=[[Say("one")], [Say("two")]])
    called = {"type": "tool-x", "toolCallId": "c1", "state": "output-available", "output": 1}

    async def three() -> list[Answer]:
        second = asked("?", "one", called)
        third = asked("?", "one", called, {"type": "step-start"}, {"type": "text", "text": "two"}, called)
        assert [round_number(request.messages) for request in (asked(), second, third)] == [0, 1, 2]
        return [await read(model, request) for request in (asked(), second, third)]

    first, second, third = asyncio.run(three())
    assert (first.text(), second.text()) == ("one", "two")
    assert isinstance(third.error, ModelRejected)


def test_a_function_may_write_the_script() -> None:
    model = ScriptedModel(lambda request: [Say(request.messages[0]["parts"][0]["text"])])
    assert asyncio.run(read(model, asked("echo"))).text() == "echo"


def test_a_long_script_lets_others_run() -> None:
    async def scenario() -> bool:
        others = asyncio.Event()
        asyncio.get_running_loop().call_soon(others.set)
        model: Streaming = ScriptedModel([Say("a b c d")])
        stream: AsyncGenerator[Any, None] = model.stream(asked())
        async with aclosing(stream):
            return [others.is_set() async for _ in stream][-1]

    assert asyncio.run(scenario())
