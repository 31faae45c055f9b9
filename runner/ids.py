"""Ids: how they are made, what they carry, and which partition they name.

Rules of this file: a run id starts with its partition as two hex digits and is otherwise unguessable; a child's id is
its parent's id plus a digest of the call, so it lands beside it; a thread's partition is a stable hash of its id.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import socket

from runner.errors import InvalidInput

PARTITIONS = 64
"""How many hash tags there are. Fixed: changing it would move every thread."""

_RUN_ID = re.compile(r"[0-3][0-9a-f][0-9a-z]{24}(-[0-9a-z]{16})*")
_NAME = re.compile(r"[\w.:@/+-]{1,200}")


def new_run_id(*, thread: str | None = None, idempotency_key: str | None = None) -> str:
    """A fresh id in the partition of its thread; without a thread the key chooses it, without both chance does."""
    anchor = thread if thread is not None else idempotency_key
    partition = secrets.randbelow(PARTITIONS) if anchor is None else partition_of_name(anchor)
    return f"{partition:02x}{secrets.token_hex(12)}"


def new_message_id() -> str:
    """The id of the assistant message of a run, allocated before its first chunk."""
    return f"msg-{secrets.token_hex(8)}"


def new_process_id() -> str:
    """The name of one worker or supervisor process for as long as it lives: its host and a token per start."""
    host = re.sub(r"[^0-9A-Za-z-]", "-", socket.gethostname())[:40]
    return f"{host}-{secrets.token_hex(5)}"


def partition_of_name(name: str) -> int:
    """The partition of a thread id or idempotency key; the same in every process and version."""
    return hashlib.blake2b(name.encode(), digest_size=2).digest()[0] % PARTITIONS


def partition_of_run(run_id: str) -> int:
    """The partition that a run id carries. Raises InvalidInput for a text that is no run id."""
    if not _RUN_ID.fullmatch(run_id):
        raise InvalidInput(f"{run_id[:80]!r} is not a run id; take it from the answer of submit, or from `runner list`")
    return int(run_id[:2], 16)


def checked_name(what: str, name: str) -> str:
    """`name` if it can be a thread id or key (1 to 200 word characters or any of .:@/+-); InvalidInput otherwise."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{what} {name[:80]!r} must be 1 to 200 letters, digits or any of _ . : @ / + -")
    return name


def payload_digest(payload: bytes) -> str:
    """What tells two submissions with one idempotency key apart."""
    return hashlib.blake2b(payload, digest_size=16).hexdigest()
