"""Key names: stable, and in one partition for everything that one act touches (D7)."""

from __future__ import annotations

import dataclasses
import re

import pytest

from runner.errors import InvalidInput
from runner.store.keys import Keys

RUN_ID = f"2f{'a' * 24}"
TAG = re.compile(r"\{([^{}]*)\}")


def _names(keys: Keys, run_id: str) -> dict[str, str]:
    run = keys.of_run(run_id)
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    names = {name: value for name, value in fields.items() if isinstance(value, str) and ":" in value}
    return {
        **names,
        "owned": run.owned("p"),
        "due of the partition": keys.due(run.partition),
        "owned of the partition": keys.owned(run.partition, "p"),
        "sweep": keys.sweep(run.partition),
        "idempotency": keys.idempotency(run.partition, "k"),
    }


def test_every_name_is_as_it_was_in_the_first_release() -> None:
    base = f"tr:{{2f}}:run:{RUN_ID}"
    assert _names(Keys(), RUN_ID) == {
        "run": base,
        "stream": f"{base}:stream",
        "snapshot": f"{base}:snapshot",
        "ledger": f"{base}:ledger",
        "children": f"{base}:children",
        "events": f"{base}:events",
        "due": "tr:{2f}:due",
        "_owned_prefix": "tr:{2f}:owned:",
        "owned": "tr:{2f}:owned:p",
        "due of the partition": "tr:{2f}:due",
        "owned of the partition": "tr:{2f}:owned:p",
        "sweep": "tr:{2f}:sweep",
        "idempotency": "tr:{2f}:idem:k",
    }
    assert (Keys().workers, Keys().supervisors) == ("tr:workers", "tr:supervisors")


@pytest.mark.parametrize("run_id", [RUN_ID, f"{RUN_ID}-{'z' * 16}", f"00{'b' * 24}"])
def test_all_keys_of_a_run_share_its_hash_tag(run_id: str) -> None:
    names = _names(Keys(prefix="other"), run_id)
    assert {TAG.findall(name)[0] for name in names.values()} == {run_id[:2]}
    assert all(len(TAG.findall(name)) == 1 and name.startswith("other:") for name in names.values())


def test_a_text_that_is_no_run_id_has_no_keys() -> None:
    with pytest.raises(InvalidInput):
        Keys().of_run("nonsense")
