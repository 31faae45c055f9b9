"""The storyteller of the demonstration: the application's own, with a shorter answer when a real model gives it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from jobs.agents.storyteller import Storyteller
from runner.agent import Agents

LONGEST_ANSWER_TOKENS = 320
"""About six seconds of a small model on one core."""


class ShortStoryteller(Storyteller):
    """Ends after LONGEST_ANSWER_TOKENS; the penalty keeps a very small model from going in circles."""

    model_settings: ClassVar[Mapping[str, Any]] = {"max_tokens": LONGEST_ANSWER_TOKENS, "frequency_penalty": 0.6}


agents = Agents()
agents.add(ShortStoryteller)

if os.environ.get("STORYTELLER_MODEL_URL"):
    # Imported before the pool forks, as in any worker that has been running for a while.
    importlib.import_module("pydantic_ai.models.openai")
