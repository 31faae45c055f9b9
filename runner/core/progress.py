"""What counts as progress, and what must be durable before anything that depends on it goes on.

Rules of this file: only new content is credited; heartbeats, markers, control data, replays and unknown chunks are not.
"""

from __future__ import annotations

CREDITED = frozenset(
    {
        "text-start",
        "text-delta",
        "reasoning-start",
        "reasoning-delta",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-available",
        "tool-output-error",
        "tool-output-denied",
        "file",
        "source-url",
        "source-document",
    }
)

MILESTONES = frozenset(
    {
        "tool-input-available",
        "tool-output-available",
        "tool-output-error",
        "tool-output-denied",
        "tool-approval-request",
    }
)


def is_credited(chunk_type: str) -> bool:
    """Whether a chunk of this type says that the work advanced."""
    return chunk_type in CREDITED


def is_milestone(chunk_type: str) -> bool:
    """Whether a chunk of this type must be acknowledged before the turn goes on."""
    return chunk_type in MILESTONES
