"""The header of each server script is its contract: these tests compare it with the body.

A header is the comment at the top of the file. Its sections are KEYS, ARGV, Returns and Why; KEYS and ARGV name every
index (`-- ARGV 1 epoch  2 first seq`), and a list of open length from an index on (`3.. chunks`). A section goes on in
the comment lines below it, with or without its name; what stands in parentheses is a remark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

SCRIPTS = sorted((ROOT / "runner" / "store" / "lua").glob("*.lua"))
SECTIONS = ("KEYS", "ARGV", "Returns", "Why")

_SECTION = re.compile(rf"^({'|'.join(SECTIONS)})\b:?\s*(.*)$")
_INDEX = re.compile(r"(?<!\S)(\d+)(\.\.(\d*))?(?=\s|$)")


@dataclass(frozen=True)
class Indices:
    """Indices of KEYS or ARGV: single ones, and where a list of open length starts, if there is one."""

    single: frozenset[int]
    open_from: int | None


def _header_and_body(text: str) -> tuple[list[str], str]:
    lines = text.splitlines()
    end = next((at for at, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return [line.lstrip("-").strip() for line in lines[:end]], "\n".join(lines[end:])


def _sections(header: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    current = ""
    for line in header:
        if match := _SECTION.match(line):
            current = match[1]
            found[current] = f"{found.get(current, '')} {match[2]}"
        elif current:
            found[current] += " " + line
    return found


def _declared(section: str) -> Indices:
    single: set[int] = set()
    open_from = None
    for match in _INDEX.finditer(re.sub(r"\([^()]*\)", "", section)):
        first = int(match[1])
        if match[2] is None:
            single.add(first)
        elif match[3]:
            single.update(range(first, int(match[3]) + 1))
        else:
            open_from = first
    return Indices(frozenset(single), open_from)


def _used(array: str, body: str) -> Indices:
    """What the body uses. A computed index, a length or the whole array means a list of open length, from 0 on."""
    code = re.sub(r"--.*", "", body)
    literal = frozenset(int(index) for index in re.findall(rf"\b{array}\[\s*(\d+)\s*\]", code))
    is_open = re.search(rf"\b{array}\b(?!\[\s*\d+\s*\])", code) is not None
    return Indices(literal, 0 if is_open else None)


def contract_breaks(text: str) -> list[str]:
    """What in this script's header and body does not agree."""
    header, body = _header_and_body(text)
    sections = _sections(header)
    breaks = [f"the header has no {name}" for name in SECTIONS if not sections.get(name, "").strip()]
    for array in ("KEYS", "ARGV"):
        declared, used = _declared(sections.get(array, "")), _used(array, body)
        if (declared.open_from is None) != (used.open_from is None):
            breaks.append(
                f"{array}: a list of open length is in the {'body' if used.open_from == 0 else 'header'} only"
            )
        listed = {index for index in used.single if declared.open_from is not None and index >= declared.open_from}
        breaks += [
            f"{array}[{index}] is used, not declared" for index in sorted(used.single - declared.single - listed)
        ]
        breaks += [f"{array}[{index}] is declared, not used" for index in sorted(declared.single - used.single)]
    return breaks


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_header_and_body_of_a_script_agree(script: Path) -> None:
    assert contract_breaks(script.read_text(encoding="utf-8")) == []


GOOD = """\
-- One atomic act.
-- KEYS 1 run  2 due
-- ARGV 1 epoch  2 first seq (of 1)
--      3.. chunks
-- Returns {status, seq}
-- Why a check before a write is a race.
redis.call('HGET', KEYS[1], 'epoch') -- not ARGV[9]
for i = 3, #ARGV do redis.call('ZADD', KEYS[2], ARGV[1], ARGV[2] .. ARGV[i]) end
"""


def test_a_good_contract_is_accepted() -> None:
    assert contract_breaks(GOOD) == []


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        ("2 due", "", "KEYS[2] is used, not declared"),
        ("2 due", "2 due  3 extra", "KEYS[3] is declared, not used"),
        ("--      3.. chunks\n", "", "ARGV: a list of open length is in the body only"),
        ("#ARGV", "4", "KEYS: a list of open length is in the body only"),
        ("-- Why", "-- Because", "the header has no Why"),
        ("-- Returns {status, seq}\n", "", "the header has no Returns"),
    ],
)
def test_a_broken_contract_is_noticed(was: str, becomes: str, expected: str) -> None:
    broken = GOOD.replace(was, becomes)
    if was == "#ARGV":
        broken = broken.replace("ARGV[i]", "KEYS[i]").replace("3.. chunks", "")
    assert expected in contract_breaks(broken)
