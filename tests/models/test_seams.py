"""Texts that were cut in the middle of a character or of a gap between words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.models.seams import SeamTrim, SurrogateJoin, whole, whole_value


def pushed(join: SurrogateJoin | SeamTrim, *deltas: str) -> list[str]:
    return [join.push(delta) for delta in deltas]


@given(st.text(min_size=1), st.data())
def test_any_text_cut_between_its_utf16_units_comes_out_whole(text: str, data: st.DataObject) -> None:
    units = [bytes(pair) for pair in zip(*[iter(text.encode("utf-16-le"))] * 2, strict=True)]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(units)))))
    halves = [
        b"".join(units[start:end]).decode("utf-16-le", "surrogatepass")
        for start, end in zip([0, *cuts], [*cuts, len(units)], strict=True)
    ]
    join = SurrogateJoin()
    assert "".join([*pushed(join, *halves), join.flush()]) == text


def test_a_half_alone_becomes_the_replacement_character() -> None:
    join = SurrogateJoin()
    assert [*pushed(join, "a\ud83d", "b\ude00", "c\ud83d"), join.flush()] == ["a", "\ufffdb\ufffd", "c", "\ufffd"]


def test_whole_value_reaches_every_string() -> None:
    assert whole_value({"a\ud83d\ude00": ["\ud83d", 1, None, True]}) == {"a😀": ["\ufffd", 1, None, True]}
    assert whole("plain") == "plain"


@pytest.mark.parametrize(
    ("held", "deltas", "given_out"),
    [
        ("", [" a", " b"], " a b"),
        (" ", [" vast", " sea"], "vast sea"),
        (" ", ["vast"], "vast"),
        ("\n", ["\n", "\n", "two"], "\ntwo"),
        ("\n\n", ["\n", "one"], "one"),
        (" ", [" ", " "], ""),
    ],
)
def test_white_space_at_the_seam_is_not_repeated(held: str, deltas: list[str], given_out: str) -> None:
    assert "".join(pushed(SeamTrim(held), *deltas)) == given_out
