"""Which server is new enough, and how long to wait for a provider: two small tables."""

from __future__ import annotations

import pytest

from runner.core.recovery.backoff import provider_delay_ms
from runner.core.server import floor_text, identify, meets_floor
from runner.core.turn.round import RoundEnd, RoundRequest


@pytest.mark.parametrize(
    ("product", "version", "expected"),
    [
        ("redis", "7.0.15", True),
        ("redis", "7.0", True),
        ("redis", "6.2.14", False),
        ("redis", "10.0.0", True),
        ("valkey", "7.2.0", True),
        ("valkey", "7.1.9", False),
        ("valkey", "9.1.2", True),
        ("dragonfly", "99.0", False),
        ("redis", "unknown", False),
        ("redis", "", False),
    ],
)
def test_the_floor(product: str, version: str, expected: bool) -> None:
    assert meets_floor(product, version) is expected


def test_the_floor_is_told_by_product_or_as_a_whole() -> None:
    assert floor_text("redis") == "Redis 7.0"
    assert floor_text("valkey") == "Valkey 7.2"
    assert floor_text("other") == "Redis 7.0 or Valkey 7.2"


def test_a_valkey_server_is_not_taken_for_the_redis_it_imitates() -> None:
    assert identify({"redis_version": "7.2.4", "valkey_version": "9.1.2"}) == ("valkey", "9.1.2")
    assert identify({"redis_version": "8.0.2"}) == ("redis", "8.0.2")
    assert identify({}) == ("redis", "unknown")


@pytest.mark.parametrize(("attempt", "delay"), [(1, 1_000), (2, 2_000), (5, 16_000), (6, 30_000), (10**6, 30_000)])
def test_a_provider_is_asked_again_ever_later_up_to_a_cap(attempt: int, delay: int) -> None:
    assert provider_delay_ms(attempt) == delay


@pytest.mark.parametrize(("wished", "delay"), [(0, 0), (5, 5), (60_000, 60_000), (10**9, 60_000), (-5, 0)])
def test_a_providers_own_wish_wins_up_to_its_own_cap(wished: int, delay: int) -> None:
    assert provider_delay_ms(1, wished) == delay


def test_a_round_asks_with_nothing_but_messages_and_ends_complete() -> None:
    request = RoundRequest("r1", [])
    assert (request.instructions, dict(request.settings)) == (None, {})
    end = RoundEnd("stop")
    assert (end.complete, end.capped, end.input_tokens) == (True, False, None)
