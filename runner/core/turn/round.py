"""One request to a model and how its answer ended, as plain values.

Rules of this file: data only. A model takes a `RoundRequest` and yields chunks, then exactly one `RoundEnd`; a stream
that stops without one was interrupted, never finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Chunk = dict[str, Any]
Message = dict[str, Any]

Finish = Literal["stop", "length", "content-filter", "tool-calls", "error", "other"]


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What a model is asked. `messages` are UI messages, oldest first; the last one may be the partial answer itself,
    which the model then continues. `round_id` makes the ids of the parts of the answer (`<round_id>:<n>`)."""

    round_id: str
    messages: Sequence[Message]
    instructions: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """How the answer ended. `complete` is False when the provider never said why it stopped; `capped` says the output
    limit cut it. Token counts are None when the provider did not tell."""

    finish: Finish
    raw_finish: str | None = None
    complete: bool = True
    capped: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
