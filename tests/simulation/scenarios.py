"""The turns that the simulation runs: each small, and each with an end that no fault may change.

Rules of this file: a turn waits between two chunks (virtual time is free), so that each chunk is a call of its own and
every place between two chunks is a place to fail at. What an agent does to the outside is written in the journal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from jobs.agents.counter import counter
from runner.agent import Agent, Agents, Model, TurnContext
from runner.core.run import Reason, State
from runner.models.scripted import Cut, Finish, Say, Script, ScriptedModel, Think
from tests.support.simulation import World
from tests.support.virtual_time import pass_ms

PACE_MS = 10
STORY = "One keeper counted every wave. "
THOUGHT = "Let me think. "


@dataclass(frozen=True)
class Scenario:
    """One run: what is submitted, and how it must end. `steps` are the names of its memoised steps."""

    name: str
    text: str
    input: Any = None
    message: str | None = None
    state: State = State.COMPLETED
    reason: str = Reason.FINISHED
    reasoning: str | None = None
    steps: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def submission(self) -> dict[str, Any]:
        return {"input": self.input, "message": self.message}


COUNTER = Scenario("counter", "0 1 2 3 ", input={"n": 4, "pace_ms": PACE_MS})
STEPS = Scenario("steps", "got 1, then 2, stashed 12", steps=("one", "two"))
STORYTELLER = Scenario("storyteller", STORY, message="a story")
RAISES = Scenario("raises", "half a ", state=State.FAILED, reason=Reason.AGENT_ERROR)
CUT = Scenario("cut", STORY, message="a story")
ANEW = Scenario("anew", STORY, message="a story")
THINKS = Scenario("thinks", STORY, message="a story", reasoning=THOUGHT)
PARTS = Scenario("parts", "a b c ")
BATCHES = Scenario("batches", "".join(f"w{n} " for n in range(12)), settings={"batch_chunks": 2})

ALL = (COUNTER, STEPS, STORYTELLER, RAISES, CUT, ANEW, THINKS, PARTS, BATCHES)


def agents_of(journal: list[tuple[str, str, str]]) -> Agents:
    """Every agent, writing its effects to that journal."""
    agents = Agents()
    agents.turn("counter")(counter)
    agents.turn("steps")(_steps(journal))
    agents.turn("raises")(_raises)
    agents.turn("parts")(_parts)
    agents.turn("batches")(_batches)
    agents.turn("quiet")(_quiet)
    agents.add(_told("storyteller", [Say(STORY), Finish()]))
    agents.add(_told("cut", [Say(STORY[:10], close=False), Cut(times=1), Say(STORY[10:]), Finish()]))
    agents.add(_told("anew", [Say(STORY[:10], close=False), Cut(times=1), Say(STORY[10:]), Finish()], continues=False))
    agents.add(_told("thinks", [Think(THOUGHT), Say(STORY), Finish()]))
    agents.add(_told("always-cut", [Say(STORY), Cut()]))
    agents.add(_told("always-cut-anew", [Say(STORY), Cut()], continues=False))
    return agents


def world_of(scenario: Scenario | None = None, **settings: Any) -> World:
    """A world with every agent."""
    world = World(Agents(), **{**(scenario.settings if scenario else {}), **settings})
    world.agents = agents_of(world.journal)
    return world


def _told(name: str, script: Script, *, continues: bool = True) -> Agent:
    played = ScriptedModel(script, pace_ms=PACE_MS, continues_partial=continues)

    class Told(Agent):
        instructions = "Tell it."

        def make_model(self) -> Model:
            return played

    Told.name = name
    return Told()


def _steps(journal: list[tuple[str, str, str]]) -> Callable[[TurnContext], AsyncIterator[str]]:
    async def steps(ctx: TurnContext) -> AsyncIterator[str]:
        def effect(name: str, value: int) -> int:
            journal.append(("effect", ctx.run_id, name))
            return value

        async def two() -> int:
            await pass_ms(PACE_MS)
            return effect("two", 2)

        one = await ctx.step("one", lambda: effect("one", 1))
        so_far = f"got {one}, "
        yield so_far[len(ctx.text) :]
        await ctx.flush()
        result: int = await ctx.step("two", two)
        so_far += f"then {result}, "
        yield so_far[len(ctx.text) :]
        if ctx.stashed is None:
            await ctx.stash({"sum": 10 * one + result})
        await ctx.flush()
        yield f"{so_far}stashed {12 if ctx.stashed is None else ctx.stashed['sum']}"[len(ctx.text) :]

    return steps


async def _raises(ctx: TurnContext) -> AsyncIterator[str]:
    for word in ("half ", "a ")[len(ctx.text.split()) :]:
        yield word
        await pass_ms(PACE_MS)
    raise ValueError("boom \ud83d")


async def _parts(ctx: TurnContext) -> AsyncIterator[str | dict[str, Any]]:
    for number, word in enumerate(("a ", "b ", "c ")):
        if number < len(ctx.text.split()):
            continue
        yield word
        yield {"type": "data-note", "id": "only", "data": {"number": number}}
        yield {"type": "x-unknown", "kept": [number]}
        await pass_ms(PACE_MS)
        await ctx.flush()


async def _batches(ctx: TurnContext) -> AsyncIterator[str]:
    for number in range(len(ctx.text.split()), 12):
        yield f"w{number} "


async def _quiet(ctx: TurnContext) -> None:
    """Says one word and then nothing, for ever."""
    if not ctx.text:
        await ctx.say("one ")
        await ctx.flush()
    while True:
        await pass_ms(10_000)
