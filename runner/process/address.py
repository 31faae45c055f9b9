"""Which server a program uses: the one that RUNNER_REDIS_URL names, or the embedded one of its data directory.

Rules of this file: the decision is made here and nowhere else; it blocks, so it is made before an event loop runs; the
lease on an embedded server is held as long as the program needs the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runner.process import server_keeper as keeper
from runner.process.data_directory import is_held
from runner.process.embedded import start_or_attach
from runner.settings import Settings
from runner.store.connection import without_password


@contextmanager
def with_server(settings: Settings) -> Iterator[Settings]:
    """The settings with the address of a server, which is there for the length of the `with` block.

    A configured server is taken as it is, without a look. An embedded one is started when it does not run. Raises as
    `start_or_attach`.
    """
    if settings.redis_url is not None:
        yield settings
        return
    with start_or_attach(settings.data_dir, configured_binary=settings.redis_bin) as server:
        yield settings.model_copy(update={"redis_url": server.url})


def keep_server(settings: Settings) -> bool:
    """Starts the embedded server again when it was killed; True when it did. Nothing for a configured server.

    `settings` are those from before `with_server`. Blocks; raises as `start_or_attach`.
    """
    if settings.redis_url is not None or is_held(settings.data_dir.expanduser(), keeper.SERVER_LOCK):
        return False
    with start_or_attach(settings.data_dir, configured_binary=settings.redis_bin) as server:
        return not server.attached


def where(settings: Settings) -> str:
    """The server in words, without a password. `settings` are those from before `with_server`."""
    if settings.redis_url is not None:
        return without_password(settings.redis_url)
    return f"embedded server in {settings.data_dir}"
