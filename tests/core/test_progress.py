"""What counts as progress (I7), and what must be durable first."""

from __future__ import annotations

import pytest

from runner.core.progress import CREDITED, MILESTONES, is_credited, is_milestone


@pytest.mark.parametrize("kind", sorted(CREDITED))
def test_new_content_is_credited(kind: str) -> None:
    assert is_credited(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *("start", "start-step", "finish-step", "reset-step", "finish", "abort", "error", "text-end", "reasoning-end"),
        *("message-metadata", "data-anything", "data-heartbeat", "unknown", "", "text-delta "),
    ],
)
def test_markers_control_and_unknown_chunks_are_not(kind: str) -> None:
    assert not is_credited(kind)
    assert not is_milestone(kind)


@pytest.mark.parametrize("kind", sorted(MILESTONES))
def test_what_starts_or_settles_something_is_a_milestone(kind: str) -> None:
    assert is_milestone(kind)


def test_a_delta_is_no_milestone() -> None:
    """Text may be batched; nothing depends on one delta."""
    assert not any(is_milestone(kind) for kind in CREDITED if kind.endswith("-delta"))
