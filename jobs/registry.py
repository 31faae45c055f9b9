"""The agents of this application: what `RUNNER_AGENTS=jobs.registry:agents` names."""

from __future__ import annotations

from jobs.agents.counter import counter
from jobs.agents.echo import echo
from jobs.agents.storyteller import Storyteller
from runner.agent import Agents

agents = Agents()
agents.turn("echo")(echo)
agents.turn("counter")(counter)
agents.add(Storyteller)
