"""Ids: what they carry and which are refused (D7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import ids
from runner.errors import InvalidInput

RUN_ID = f"2f{'a' * 24}"


def test_a_run_lands_in_the_partition_of_its_thread() -> None:
    expected = ids.partition_of_name("t-1")
    made = {ids.new_run_id(thread="t-1", idempotency_key="k") for _ in range(20)}
    assert len(made) == 20
    assert {ids.partition_of_run(run_id) for run_id in made} == {expected}


def test_without_a_thread_the_key_chooses_and_without_both_chance_does() -> None:
    assert ids.partition_of_run(ids.new_run_id(idempotency_key="k")) == ids.partition_of_name("k")
    assert len({ids.partition_of_run(ids.new_run_id()) for _ in range(200)}) > 1


@given(st.text(max_size=50).filter(lambda text: text.isascii()))
def test_the_partition_of_a_name_is_one_of_those_there_are(name: str) -> None:
    assert 0 <= ids.partition_of_name(name) < ids.PARTITIONS


@pytest.mark.parametrize(("name", "partition"), [("t-1", 41), ("t-2", 21), ("é", 39), ("", 49)])
def test_the_partition_of_a_name_never_changes(name: str, partition: int) -> None:
    """Changing it would move every thread away from its runs."""
    assert ids.partition_of_name(name) == partition


@pytest.mark.parametrize("number", range(ids.PARTITIONS))
def test_every_partition_can_be_read_from_a_run_id(number: int) -> None:
    assert ids.partition_of_run(f"{number:02x}{'0' * 24}") == number


def test_a_child_lands_beside_its_parent() -> None:
    child = f"{RUN_ID}-{'z' * 16}"
    assert ids.partition_of_run(f"{child}-{'1' * 16}") == ids.partition_of_run(RUN_ID)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        RUN_ID[:-1],
        f"{RUN_ID}a",
        f"{RUN_ID}\n",
        f" {RUN_ID}",
        f"40{'a' * 24}",
        f"2F{'a' * 24}",
        f"{RUN_ID}-short",
        f"{RUN_ID}:stream",
        "00{}" + "a" * 22,
        "0٣" + "a" * 24,
    ],
)
def test_what_is_no_run_id_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a run id"):
        ids.partition_of_run(text)


@given(st.text(max_size=60))
def test_a_text_is_a_run_id_or_is_refused(text: str) -> None:
    try:
        assert 0 <= ids.partition_of_run(text) < ids.PARTITIONS
    except InvalidInput:
        return


@pytest.mark.parametrize("name", ["t", "user@example.org", "a/b:c.d+e_f-1", "ünïcode", "x" * 200])
def test_a_name_may_be_what_people_use(name: str) -> None:
    assert ids.checked_name("thread", name) == name


@pytest.mark.parametrize("name", ["", "x" * 201, "a b", "a\n", "{00}", "a*", "\ud800", "a\x00"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="thread"):
        ids.checked_name("thread", name)


def test_ids_that_are_made_are_their_own() -> None:
    assert len({ids.new_message_id() for _ in range(50)}) == 50
    assert len({ids.new_process_id() for _ in range(50)}) == 50
    assert ids.checked_name("process", ids.new_process_id())


def test_a_digest_tells_payloads_apart_and_is_stable() -> None:
    assert ids.payload_digest(b"a") == ids.payload_digest(b"a") == "27c35e6e9373877f29e562464e46497e"
    assert ids.payload_digest(b"a") != ids.payload_digest(b"b")
    assert " " not in ids.payload_digest(b"")
