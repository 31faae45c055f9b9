"""The adapter against a provider that misbehaves: what came stays, what it means is named."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import aclosing
from typing import Any

import pytest

from runner.core.turn.round import RoundEnd
from runner.errors import MissingExtra, ModelInterrupted, ModelRejected, ModelRetryable
from runner.models.pydantic_ai import PydanticAIModel
from tests.models.fake_provider import Event, FakeProvider, finishes, says, serving
from tests.models.reading import Answer, asked, read


def answered(*events: Event, request: Any = None, options: Any = None, **reply: Any) -> tuple[Answer, FakeProvider]:
    async def scenario() -> tuple[Answer, FakeProvider]:
        async with serving(*events, **reply) as fake:
            return await read(fake.model(**(options or {})), request or asked()), fake

    return asyncio.run(scenario())


def test_a_text_comes_as_one_part_then_its_end() -> None:
    answer, fake = answered(says(role="assistant", content=""), says(content="Red"), says(content=" is"), *finishes())
    assert answer.chunks == [
        {"type": "text-start", "id": "r1:0"},
        {"type": "text-delta", "id": "r1:0", "delta": "Red"},
        {"type": "text-delta", "id": "r1:0", "delta": " is"},
        {"type": "text-end", "id": "r1:0"},
    ]
    assert answer.end == RoundEnd("stop", "stop", input_tokens=3, output_tokens=7)
    assert fake.bodies[0]["messages"] == [{"role": "user", "content": "Tell me."}]


def test_a_thought_keeps_what_its_provider_wants_back() -> None:
    answer, _ = answered(says(reasoning_content="Hm"), says(reasoning_content="."), says(content="Hi"), *finishes())
    assert (answer.text("reasoning"), answer.text()) == ("Hm.", "Hi")
    kept = {"id": "reasoning_content", "provider_name": "openai"}
    ends = [chunk for chunk in answer.chunks if chunk["type"] == "reasoning-end"]
    assert ends == [{"type": "reasoning-end", "id": "r1:0", "providerMetadata": {"pydantic_ai": kept}}]


def test_instructions_partial_and_settings_are_sent() -> None:
    request = asked("?", "The sea is ", instructions="Help.", settings={"max_tokens": 5})
    answer, fake = answered(says(content=" vast"), *finishes("length", out=5), request=request)
    assert (answer.text(), answer.end) == ("vast", RoundEnd("length", "length", True, True, 3, 5))
    assert fake.bodies[0]["messages"] == [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "The sea is"},
    ]
    assert fake.bodies[0]["max_completion_tokens"] == 5


@pytest.mark.parametrize(("reason", "finish"), [("content_filter", "content-filter"), ("eos_exotic", "other")])
def test_finish_reasons(reason: str, finish: str) -> None:
    answer, _ = answered(says(content="a"), *finishes(reason))
    assert answer.end is not None
    assert (answer.end.finish, answer.end.raw_finish, answer.end.capped) == (finish, reason, False)


def test_reaching_the_limit_is_capped_whatever_the_provider_calls_it() -> None:
    answer, _ = answered(says(content="a"), *finishes("stop", out=4), options={"settings": {"max_tokens": 4}})
    assert answer.end is not None
    assert (answer.end.finish, answer.end.capped) == ("stop", True)


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_an_answer_without_parts(reason: str) -> None:
    answer, _ = answered(says(role="assistant", content=""), *finishes(reason))
    assert answer.chunks == []
    assert answer.end is not None
    assert answer.end.finish == reason


@pytest.mark.parametrize("tail", [[], ["[DONE]"], ["RESET"], ["{junk"]])
def test_a_stream_that_breaks_off_is_interrupted_after_its_text(tail: list[Event]) -> None:
    answer, fake = answered(says(content="Once"), says(content=" upon"), *tail)
    assert (answer.text(), answer.types()[-1], answer.end) == ("Once upon", "text-end", None)
    assert isinstance(answer.error, ModelInterrupted)
    assert len(fake.bodies) == 1


def test_an_end_without_a_reason_can_be_accepted() -> None:
    answer, _ = answered(says(content="Once"), "[DONE]", options={"require_raw_finish": False})
    assert answer.error is None
    assert answer.end is not None
    assert not answer.end.complete


def test_an_error_inside_the_stream_keeps_the_text() -> None:
    error = {"error": {"message": "slow down", "code": "rate_limit_exceeded", "type": "requests"}}
    answer, _ = answered(says(content="Once"), error)
    assert answer.text() == "Once"
    assert isinstance(answer.error, ModelInterrupted)


@pytest.mark.parametrize(
    ("status", "headers", "error", "wait_ms"),
    [
        ("429 Too Many Requests", ["retry-after: 7"], ModelRetryable, 7000),
        ("429 Too Many Requests", ["retry-after-ms: 250"], ModelRetryable, 250),
        ("503 Unavailable", [], ModelRetryable, None),
        ("500 Oops", [], ModelRetryable, None),
        ("401 Unauthorized", [], ModelRejected, None),
        ("404 Not Found", [], ModelRejected, None),
        ("400 Bad Request", [], ModelRejected, None),
        ("402 Payment Required", [], ModelRejected, None),
    ],
)
def test_refusals(status: str, headers: list[str], error: type[Exception], wait_ms: int | None) -> None:
    answer, fake = answered(status=status, headers=headers)
    assert (answer.chunks, answer.end, type(answer.error)) == ([], None, error)
    assert getattr(answer.error, "retry_after_ms", None) == wait_ms
    assert len(fake.bodies) == 1, "the runner owns retries"


def test_nobody_listening_is_retryable() -> None:
    async def scenario() -> Answer:
        async with serving() as fake:
            model = fake.model()
        return await read(model, asked())

    assert type(asyncio.run(scenario()).error) is ModelRetryable


def test_split_surrogates_are_joined() -> None:
    answer, _ = answered(says(content="a\ud83d"), says(content="\ude00b\ud83d"), *finishes())
    assert answer.text() == "a😀b\ufffd"


@pytest.mark.parametrize(("events", "error"), [([], ModelRetryable), ([says(content="Once")], ModelInterrupted)])
def test_silence_has_a_limit(events: list[Event], error: type[Exception]) -> None:
    limits = {"idle_timeout_s": 0.2, "first_event_timeout_s": 0.2 if not events else 60}

    async def scenario() -> Answer:
        async with serving(*events, "HANG") as fake:
            answer = await read(fake.model(**limits), asked())
            await asyncio.wait_for(fake.gone.wait(), 10)
            return answer

    answer = asyncio.run(scenario())
    assert type(answer.error) is error
    assert answer.text() == ("Once" if events else "")


@pytest.mark.parametrize("way", ["close", "cancel"])
def test_leaving_closes_the_connection(way: str) -> None:
    async def scenario() -> None:
        async with serving(says(content="Once"), "HANG") as fake:
            stream = fake.model(idle_timeout_s=None).stream(asked())
            async with aclosing(stream):
                assert [(await anext(stream))["type"] for _ in range(2)] == ["text-start", "text-delta"]  # type: ignore[index]
                if way == "cancel":
                    waiting = asyncio.create_task(anext(stream))
                    await asyncio.sleep(0)  # lets it begin to wait
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
            await asyncio.wait_for(fake.gone.wait(), 10)

    asyncio.run(scenario())


def test_one_model_serves_several_event_loops() -> None:
    from pydantic_ai.models.test import TestModel

    model = PydanticAIModel(lambda: TestModel(custom_output_text="hi"), require_raw_finish=False)
    assert [asyncio.run(read(model, asked())).text() for _ in range(2)] == ["hi", "hi"]


@pytest.mark.parametrize("name", ["openai:gpt-x", "nobody:model", "nonsense"])
def test_a_model_that_cannot_be_used_is_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert isinstance(asyncio.run(read(PydanticAIModel(name), asked())).error, ModelRejected)


@pytest.mark.parametrize(
    ("name", "absent", "install"),
    [
        ("openai:gpt-x", "pydantic_ai.direct", "pip install 'turnrunner[pydantic-ai]'"),
        ("openai:gpt-x", "openai", "pip install 'turnrunner[pydantic-ai]'"),
        ("anthropic:x", "anthropic", "pip install 'pydantic-ai-slim[anthropic]'"),
    ],
)
def test_what_is_not_installed_is_named(name: str, absent: str, install: str) -> None:
    program = (
        f"import sys, asyncio; sys.modules[{absent!r}] = None\n"
        "from runner.models.pydantic_ai import PydanticAIModel\n"
        "from runner.core.turn.round import RoundRequest\n"
        f"asyncio.run(anext(PydanticAIModel({name!r}).stream(RoundRequest('r1', []))))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert f"{MissingExtra.__name__}: " in done.stderr
    assert done.stderr.strip().endswith(install)


def test_importing_the_models_loads_no_provider_library() -> None:
    program = (
        "import sys, runner.models.pydantic_ai, runner.models.local, runner.models.scripted\n"
        "assert not {'pydantic_ai', 'openai', 'xllamacpp'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
