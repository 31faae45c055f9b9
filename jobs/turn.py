"""The entry points that RQ calls: the whole allow list of a worker.

Rule of this file: nothing is decided here; a job is a run id and an epoch, and everything else is in the store.
"""

from __future__ import annotations

from runner import bootstrap
from runner.engine import execution


async def execute(run_id: str, epoch: int) -> None:
    """Runs one attempt of a run, if its epoch is still `epoch`."""
    await execution.execute(bootstrap.current(), run_id, epoch)
