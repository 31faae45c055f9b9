"""The port that users write against: agents, turns, models, and what a turn is given.

Rules of this file: no I/O and no engine; what stands here is a promise to authors. A turn is run at least once and its
output appears once: code between two emits may run again after a crash, `ctx.step` results and emitted chunks do not.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from runner.core.turn.round import Chunk, Message, RoundEnd, RoundRequest
from runner.errors import InvalidInput, UnknownAgent

T = TypeVar("T")


@runtime_checkable
class Model(Protocol):
    """Anything that answers a request with chunks."""

    continues_partial: bool
    """Whether it goes on from a partial answer that ends the messages. When not, an unfinished step is asked again."""

    def stream(self, request: RoundRequest) -> AsyncGenerator[Chunk | RoundEnd, None]:
        """Chunks of the parts of one answer, then exactly one RoundEnd. Closing the generator cancels the request.

        Raises ModelRejected, ModelRetryable or ModelInterrupted.
        """
        ...


class TurnContext(Protocol):
    """What a turn is given. All of it is durable or derived from what is."""

    run_id: str
    attempt: int
    """Which execution of the run this is, from 1."""
    input: Any
    """The JSON value that was submitted."""
    message: str | None
    """The user's text, when one was submitted."""
    messages: list[Message]
    """The UI messages before the answer, oldest first. A model agent's are repaired and end with the user's text."""

    @property
    def stashed(self) -> Any:
        """What was stashed last, by this attempt or an earlier one; None when nothing was."""
        ...

    @property
    def text(self) -> str:
        """All text that the run has given out so far, earlier attempts included."""
        ...

    @property
    def partial(self) -> Message:
        """The assistant message so far."""
        ...

    async def emit(self, chunk: Chunk) -> int:
        """Appends one chunk and returns its seq. TooLarge or InvalidInput for a chunk that cannot be stored."""
        ...

    async def say(self, delta: str) -> int:
        """Appends text to the open text part, opening one when there is none; returns the seq."""
        ...

    async def step(self, name: str, fn: Callable[[], T | Awaitable[T]]) -> T:
        """The JSON result of `fn`, run once per run however many attempts there are; a blocking `fn` gets a thread."""
        ...

    async def stash(self, value: Any) -> None:
        """Keeps one JSON value for the next attempt; the last one wins."""
        ...

    async def flush(self) -> None:
        """Returns when everything emitted so far is durable."""
        ...


TurnFunction = Callable[[Any], AsyncIterator[str | Chunk] | Awaitable[None]]


class Agent:
    """An agent that is a model and its instructions. Subclass it and set the class attributes."""

    name: ClassVar[str] = ""
    """How runs name it; by default the class name in lower case."""
    model: ClassVar[Model | str]
    """A `Model`, or a name that pydantic-ai knows (`openai:gpt-5`)."""
    instructions: ClassVar[str | None] = None
    model_settings: ClassVar[Mapping[str, Any]] = {}
    """Passed to the model as they are (`max_tokens`, `temperature`, ..)."""

    def make_model(self) -> Model | str:
        """The model of this agent; override it when building one needs code."""
        return self.model

    async def before_turn(self, ctx: TurnContext) -> None:
        """Called in each attempt before the model is asked, with the repaired history in `ctx.messages`. What raises
        here fails the turn."""

    def repair_interrupted_tool_part(self, part: dict[str, Any]) -> dict[str, Any] | None:  # noqa: ARG002 - for authors
        """What to store in place of a tool call that was interrupted before it had a result.

        Asked before each turn, for every such call of the whole history, before the model or `before_turn` sees it;
        calls with a result and calls that still wait for a human never get here. `part` is a copy, its input an object,
        its state what the call had reached. Return None for the default, an error result that says so; or a part of
        another kind (a question to the user may become a text part); or the tool part, settled, with its toolCallId.
        The result is stored, so it must be JSON, and the same call is not asked about again. It may not block. When it
        raises, or returns anything else, the default is stored and the failure is reported.
        """
        return None


@dataclass(frozen=True, slots=True)
class FunctionTurn:
    """A turn that is a plain async generator or coroutine function."""

    name: str
    function: TurnFunction


Program = Agent | FunctionTurn


class Agents:
    """The agents that a worker may run, by name."""

    def __init__(self) -> None:
        self._programs: dict[str, Program] = {}

    def add(self, agent: type[Agent] | Agent) -> None:
        """Registers a model agent under its name. InvalidInput when the name is taken or there is no model."""
        made = agent() if isinstance(agent, type) else agent
        self._register(made.name or type(made).__name__.lower(), made)

    def turn(self, name: str) -> Callable[[TurnFunction], TurnFunction]:
        """Registers an async generator or coroutine function as a turn."""

        def register(function: TurnFunction) -> TurnFunction:
            if not (inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)):
                raise InvalidInput(f"turn {name!r} must be an async generator or coroutine function")
            self._register(name, FunctionTurn(name, function))
            return function

        return register

    def get(self, name: str) -> Program:
        """The agent of that name. Raises UnknownAgent."""
        if name not in self._programs:
            raise UnknownAgent(name, self.names())
        return self._programs[name]

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._programs))

    def _register(self, name: str, program: Program) -> None:
        if name in self._programs:
            raise InvalidInput(f"two agents are named {name!r}; give one another name")
        self._programs[name] = program
