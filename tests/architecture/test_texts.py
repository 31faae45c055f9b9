"""The project's texts speak of the project alone: nothing of the machine they were written on."""

from __future__ import annotations

import os
import re

from tests.architecture.tree import tracked_texts

# Absolute paths of one machine. Inside a longer path or an address (https://host/home/) they are no such thing.
_MACHINE_PATH = re.compile(r"(?<![\w.})~*-])/(?:(?:work|root|home|Users)/[\w.-]+|tmp/brief)")


def test_no_text_names_a_path_of_one_machine() -> None:
    found = [
        f"{name}:{number}: {match[0]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), start=1)
        for match in _MACHINE_PATH.finditer(line)
    ]
    assert found == []


def test_such_a_path_is_noticed() -> None:
    somewhere = f"{os.sep}home{os.sep}someone"
    assert _MACHINE_PATH.search(f"cd {somewhere}/project")
    assert not _MACHINE_PATH.search(f"https://example.org{somewhere}")
