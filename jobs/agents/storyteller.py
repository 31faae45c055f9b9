"""storyteller: a model agent with instructions and nothing else.

With STORYTELLER_MODEL_URL set it asks the model served there (a llama.cpp server); without, it tells a story it knows
by heart, at the pace of a small model.
"""

from __future__ import annotations

import os
from functools import cache

from runner.agent import Agent, Model

_BY_HEART = (
    "Once upon a time there was a lighthouse keeper who counted the waves. Every night she lit the lamp, opened her "
    "book, and wrote down how many had come. One night the wind broke the door and blew out the lamp in the middle of "
    "a number. In the morning the people of the village asked her whether the count was lost. She showed them the "
    "book: the number was half written, so she finished the line, lit the lamp again, and went on from there. "
    "Not one wave was missing, and none was counted twice. And when she grew old, another keeper took the book, "
    "read the last line, and went on counting as if nothing had happened."
)


class Storyteller(Agent):
    """Tells a short story about whatever it is asked."""

    name = "storyteller"
    instructions = "You are a storyteller. Tell one short story about what the user asks for. Keep it simple."

    def make_model(self) -> Model:
        """The served model, or the story known by heart."""
        return _model(os.environ.get("STORYTELLER_MODEL_URL"))


@cache
def _model(url: str | None) -> Model:
    if url is not None:
        from runner.models.local import local_model

        return local_model(url)
    from runner.models.scripted import Finish, Say, ScriptedModel

    return ScriptedModel([Say(_BY_HEART), Finish()], pace_ms=40)
