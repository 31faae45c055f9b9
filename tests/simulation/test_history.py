"""The history of a turn: repaired once, stored, and shown to the author and the model in the same turn."""

from __future__ import annotations

from typing import Any

from runner.agent import Agent, Agents, Model, TurnContext
from runner.core.run import State
from runner.core.transcript.repair import INPUT_CUT
from runner.core.turn.round import RoundRequest
from runner.models.scripted import Finish, Say, ScriptedModel, Step
from tests.support.faults import Fault
from tests.support.simulation import World, at_call
from tests.support.virtual_time import run_virtual

ASKED = {"type": "tool-ask_user", "toolCallId": "c1", "state": "input-available", "input": {"prompt": "Which order?"}}
LOOKED_UP = {"type": "tool-lookup", "toolCallId": "c2", "state": "input-streaming", "input": "{}"}
CONVERSATION: list[dict[str, Any]] = [
    {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Where is it?"}]},
    {"id": "a1", "role": "assistant", "parts": [{"type": "step-start"}, ASKED, LOOKED_UP]},
]


class Seen:
    """An agent that keeps what its hook, its `before_turn` and its model were shown, in that order."""

    def __init__(self, *, raising: bool = False) -> None:
        self.shown: list[tuple[str, Any]] = []
        seen = self

        class Asker(Agent):
            name = "asker"

            def repair_interrupted_tool_part(self, part: dict[str, Any]) -> dict[str, Any] | None:
                seen.shown.append(("hook", part["toolCallId"]))
                if raising:
                    raise RuntimeError("the author's mistake")
                return {"type": "text", "text": part["input"]["prompt"]} if part["type"] == "tool-ask_user" else None

            async def before_turn(self, ctx: TurnContext) -> None:
                seen.shown.append(("before_turn", ctx.messages))

            def make_model(self) -> Model:
                return ScriptedModel(seen.script)

        self.agents = Agents()
        self.agents.add(Asker)

    def script(self, request: RoundRequest) -> list[Step]:
        """One short answer, after noting the request."""
        self.shown.append(("model", list(request.messages)))
        return [Say("It is on its way."), Finish()]

    def names(self) -> list[str]:
        """Who was shown something, in order."""
        return [name for name, _ in self.shown]


async def ask(world: World) -> str:
    return await world.submit("asker", message="Order 9", messages=CONVERSATION)


async def answered(seen: Seen, *, dies_at: int | None = None) -> int:
    """Plays one turn to its end, its first worker killed after that call; answers how many attempts it took."""
    world = World(seen.agents)
    run_id = await ask(world)
    if dies_at is not None:
        await world.work_off(world.worker(at_call(dies_at, Fault.DIE_AFTER)))
    await world.settle(run_id)
    record = world.record(run_id)
    assert record.state is State.COMPLETED
    await world.aclose()
    return record.attempts


def test_a_repair_shapes_the_same_turn() -> None:
    """I6: the hook first, then `before_turn`, then the model, all with one result per call."""
    seen = Seen()

    run_virtual(answered(seen))
    assert seen.names() == ["hook", "hook", "before_turn", "model"]
    before, asked = seen.shown[2][1], seen.shown[3][1]
    assert before == asked
    assert before[1]["parts"][1] == {"type": "text", "text": "Which order?"}
    assert before[1]["parts"][2]["state"] == "output-error"
    assert before[1]["parts"][2]["errorText"] == INPUT_CUT
    assert before[2]["parts"] == [{"type": "text", "text": "Order 9"}]


def test_a_raising_hook_leaves_the_default_repair() -> None:
    seen = Seen(raising=True)

    run_virtual(answered(seen))
    repaired = seen.shown[-1][1][1]["parts"]
    assert [part.get("state") for part in repaired] == [None, "output-error", "output-error"]


def test_a_stored_repair_is_read_back_by_a_later_attempt() -> None:
    """The hook is asked once, however often the worker is lost after the repair was stored."""
    seen = Seen()

    assert run_virtual(answered(seen, dies_at=3)) == 2
    assert seen.names().count("hook") == 2
    assert seen.names()[-2:] == ["before_turn", "model"]
    assert seen.shown[-1][1][1]["parts"][1] == {"type": "text", "text": "Which order?"}
