"""The embedded server: found, shared, left, killed and found again, with its data.

Rules of this file: users are real processes; a server ends because its users are gone, or the test fails.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from runner import errors
from runner.process import server_keeper as keeper
from runner.process.data_directory import is_held
from runner.process.embedded import EmbeddedServer, start_or_attach
from tests.support.server import fake_binary, fresh_server
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
USER = """
import json, os, sys
from pathlib import Path
from runner.process.embedded import start_or_attach
server = start_or_attach(Path(sys.argv[1]), linger_s=float(sys.argv[2]), timeout_s=30)
said = {"url": server.url, "pid": server.pid, "attached": server.attached}
"""
STAYS = USER + "print(json.dumps(said), flush=True)\nsys.stdin.read()\n"
FORKS = USER + "said['child'] = os.fork()\nif said['child']: print(json.dumps(said), flush=True)\nsys.stdin.read()\n"
CHILD_EXITS = """
pid = os.fork()
if pid == 0:
    sys.exit(0)
os.waitpid(pid, 0)
print(json.dumps(said), flush=True)
"""

COMES_AND_GOES = """
import json, sys
from pathlib import Path
import psutil, redis
from runner.process.embedded import start_or_attach
from tests.support.waiting import until
pids = set()
for visit in range(12):
    with start_or_attach(Path(sys.argv[1]), linger_s=0, timeout_s=60) as server:
        with redis.Redis.from_url(server.url) as client:
            client.incr("visits")
        pids.add(server.pid)
    if visit % 2:
        until(lambda: not psutil.pid_exists(server.pid), 60)
print(len(pids), flush=True)
"""

StartUser = Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]


def launch(data_dir: Path, linger_s: float = 0, script: str = STAYS) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(data_dir), str(linger_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A place for a data directory; at the end nothing may run there any more."""
    place = tmp_path / "data"
    yield place
    if place.is_dir():
        try:
            until(lambda: idle(place), what="end of the server")
        except AssertionError:
            for pid in (serving(place)["keeper_pid"], serving(place)["pid"]):
                os.kill(pid, signal.SIGKILL)
            raise


@pytest.fixture
def user(data_dir: Path) -> Iterator[StartUser]:
    """Starts another process that uses the server, and returns it with what it reported."""
    processes: list[subprocess.Popen[str]] = []

    def start(linger_s: float = 0, script: str = STAYS) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        processes.append(process := launch(data_dir, linger_s, script))
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield start
    for process in processes:
        end(process)


def idle(data_dir: Path) -> bool:
    return not any(is_held(data_dir, lock) for lock in (keeper.SERVER_LOCK, keeper.KEEPER_LOCK))


def serving(data_dir: Path) -> keeper.State:
    state = keeper.read_state(str(data_dir))
    assert state is not None
    return state


def start(data_dir: Path, **options: Any) -> EmbeddedServer:
    return start_or_attach(data_dir, **{"linger_s": 0, "timeout_s": 30, **options})


def put(url: str, key: str, value: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(key, value)


def get(url: str, key: str) -> str | None:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        value = client.get(key)
    assert value is None or isinstance(value, str)
    return value


# Starting and sharing


def test_a_configured_binary_below_the_floor_is_refused(tmp_path: Path, data_dir: Path) -> None:
    old = fake_binary(tmp_path / "mine", "Redis server v=6.2.14 sha=0")
    with pytest.raises(errors.ServerTooOld, match=r"redis 6\.2\.14"):
        start(data_dir, configured_binary=str(old))


def test_a_server_that_is_private_durable_and_not_in_our_terminal(data_dir: Path) -> None:
    with start(data_dir) as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"}
        assert client.config_get(*wanted) == wanted
        assert server.url == f"unix://{data_dir}/server.sock"
        assert (server.attached, server.port) == (False, None)
        assert data_dir.stat().st_mode & 0o777 == 0o700
        assert (data_dir / "server.sock").stat().st_mode & 0o077 == 0
        assert os.getsid(server.pid) != os.getsid(0)


def test_another_process_attaches(data_dir: Path, user: StartUser) -> None:
    with start(data_dir) as server:
        put(server.url, "k", "v")
        _, said = user()
        assert said == {"url": server.url, "pid": server.pid, "attached": True}
        assert get(said["url"], "k") == "v"


def test_simultaneous_starters_share_one_server(data_dir: Path) -> None:
    processes = [launch(data_dir) for _ in range(4)]
    try:
        said = [json.loads(process.stdout.readline()) for process in processes if process.stdout]
        assert len({line["pid"] for line in said}) == 1
        assert [line["attached"] for line in said].count(False) == 1
    finally:
        for process in processes:
            end(process)


def test_a_free_loopback_port_and_the_socket_lead_to_the_same_server(data_dir: Path) -> None:
    with start(data_dir, port=0) as over_tcp, start(data_dir) as over_socket:
        assert over_tcp.url == f"redis://127.0.0.1:{over_tcp.port}/0"
        put(over_tcp.url, "k", "v")
        assert get(over_socket.url, "k") == "v"
        with start(data_dir, port=over_tcp.port) as again:
            assert again.attached


def test_a_port_that_the_running_server_lacks_is_refused(data_dir: Path) -> None:
    with start(data_dir), pytest.raises(errors.ServerStartFailed, match="its unix socket only"):
        start(data_dir, port=0)


def test_a_taken_port_is_refused_with_the_server_s_own_words(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(errors.ServerStartFailed, match="in use"):
            start(data_dir, port=taken.getsockname()[1])


def test_a_server_that_dies_at_once_is_reported_with_its_last_words(tmp_path: Path, data_dir: Path) -> None:
    binary = fake_binary(tmp_path / "mine", "Redis server v=7.4.1 sha=0", "echo 'no more memory' >&2; exit 1")
    with pytest.raises(errors.ServerStartFailed, match="no more memory"):
        start(data_dir, configured_binary=str(binary))


def test_a_data_directory_with_a_long_name(tmp_path: Path) -> None:
    data_dir = tmp_path / ("d" * 120)
    with start(data_dir) as server, start(data_dir) as other:
        path = Path(server.url.removeprefix("unix://"))
        put(server.url, "k", "v")
        assert (other.url, other.pid) == (server.url, server.pid)
        assert path.parent.parent == Path(tempfile.gettempdir())
        assert path.parent.stat().st_mode & 0o777 == 0o700
        server.stop()
    with start(data_dir) as again:
        assert (again.url, get(again.url, "k")) == (server.url, "v")
        again.stop()
    path.parent.rmdir()


def test_an_open_directory_is_closed_only_when_it_holds_nothing_else(tmp_path: Path, data_dir: Path) -> None:
    data_dir.mkdir(mode=0o755)
    start(data_dir).stop()
    assert data_dir.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "letter").touch()
    with pytest.raises(errors.InvalidInput, match="open to other users"):
        start(shared)
    assert shared.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("options", [{"port": -1}, {"port": 65536}, {"linger_s": -1}, {"linger_s": float("nan")}])
def test_nonsense_is_refused(data_dir: Path, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput):
        start(data_dir, **options)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidInput, match="cannot be used"):
        start(tmp_path / "file")


# Leaving, killing, coming back


def test_owner_killed_another_attaches_and_the_data_is_there(data_dir: Path, user: StartUser) -> None:
    owner, said = user(linger_s=60)
    put(said["url"], "k", "v")
    end(owner)
    with start(data_dir) as server:
        assert (server.attached, server.pid) == (True, said["pid"])
        assert get(server.url, "k") == "v"
        server.stop()


def test_server_killed_restart_keeps_the_data(data_dir: Path) -> None:
    with start(data_dir) as server:
        put(server.url, "k", "v")
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: idle(data_dir), what="end of the server")
        assert (data_dir / "server.sock").exists()  # the stale socket must not be in the way
        with start(data_dir) as again:
            assert (again.attached, again.url) == (False, server.url)
            assert again.pid != server.pid
            assert get(again.url, "k") == "v"


def test_last_user_gone_the_server_stops_and_the_data_stays(data_dir: Path, user: StartUser) -> None:
    first, said = user(linger_s=0.2)
    second, _ = user()
    put(said["url"], "k", "v")
    end(first)
    assert get(said["url"], "k") == "v"
    end(second)
    until(lambda: idle(data_dir), what="end of the unused server and its keeper")
    assert not psutil.pid_exists(said["pid"])
    with start(data_dir) as server:
        assert not server.attached
        assert get(server.url, "k") == "v"


def test_a_user_who_comes_within_the_linger_finds_the_same_server(data_dir: Path) -> None:
    with start(data_dir, linger_s=60) as first:
        pass
    with start(data_dir) as second:
        assert (second.attached, second.pid) == (True, first.pid)
        second.stop()


def test_without_linger_the_server_is_stopped_by_hand_only(data_dir: Path) -> None:
    start(data_dir, linger_s=float("inf")).close()
    with start(data_dir) as server:
        assert server.attached
        server.stop()
    assert not psutil.pid_exists(server.pid)
    server.stop()  # again is harmless


def test_a_forked_child_keeps_the_server_alive(data_dir: Path, user: StartUser) -> None:
    parent, said = user(script=FORKS)
    parent.kill()
    parent.wait()
    assert get(said["url"], "k") is None
    os.kill(said["child"], signal.SIGKILL)
    until(lambda: idle(data_dir), what="end of the server")


def test_a_forked_child_that_exits_changes_nothing(data_dir: Path, user: StartUser) -> None:
    _, said = user(script=USER + CHILD_EXITS + "sys.stdin.read()")
    put(said["url"], "k", "v")
    assert get(said["url"], "k") == "v"
    assert (data_dir / "appendonlydir").is_dir()


def test_a_newcomer_waits_for_the_stop_and_gets_a_fresh_server(data_dir: Path) -> None:
    server = start(data_dir)
    put(server.url, "k", "v")
    os.kill(server.pid, signal.SIGSTOP)  # the stop hangs until we say so
    server.close()
    until(lambda: is_held(data_dir, keeper.USERS_LOCK), what="the keeper's decision to stop")
    with ThreadPoolExecutor(1) as pool:
        newcomer = pool.submit(start, data_dir)
        until(newcomer.running, what="the newcomer's call")
        os.kill(server.pid, signal.SIGCONT)
        with newcomer.result() as fresh:
            assert not fresh.attached
            assert fresh.pid != server.pid
            assert get(fresh.url, "k") == "v"


def test_users_that_come_and_go_at_once_never_meet_a_stopping_server(data_dir: Path) -> None:
    visitors = [launch(data_dir, script=COMES_AND_GOES) for _ in range(3)]
    told = [visitor.communicate()[0] for visitor in visitors]
    assert all(int(servers) >= 6 for servers in told)
    with start(data_dir) as server:
        assert get(server.url, "visits") == "36"


def test_a_server_that_hangs_is_a_typed_error(data_dir: Path) -> None:
    with start(data_dir) as server:
        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(errors.ServerStartFailed, match=f"pid {server.pid} does not answer"):
            start(data_dir, timeout_s=0.1)
        os.kill(server.pid, signal.SIGCONT)


def test_a_server_that_hangs_is_killed_by_stop_and_keeps_its_data(data_dir: Path) -> None:
    with start(data_dir) as server:
        put(server.url, "k", "v")
        os.kill(server.pid, signal.SIGSTOP)
        server.stop(timeout_s=0.1)
    with start(data_dir) as again:
        assert get(again.url, "k") == "v"


def test_a_lost_keeper_is_replaced_by_the_next_caller(data_dir: Path) -> None:
    with start(data_dir) as server:
        os.kill(serving(data_dir)["keeper_pid"], signal.SIGKILL)
        until(lambda: not is_held(data_dir, keeper.KEEPER_LOCK), what="end of the keeper")
        with start(data_dir) as other:
            assert (other.attached, other.pid) == (True, server.pid)
            until(lambda: is_held(data_dir, keeper.KEEPER_LOCK), what="a new keeper")
    until(lambda: idle(data_dir), what="end of the unused server")


def test_terminating_the_keeper_terminates_the_server(data_dir: Path) -> None:
    with start(data_dir, linger_s=None):
        os.kill(serving(data_dir)["keeper_pid"], signal.SIGTERM)
        until(lambda: idle(data_dir), what="end of the server")


# What tests get


@pytest.mark.parametrize("tcp", [False, True])
def test_the_test_server_is_killed_restarted_and_paused(tcp: bool) -> None:
    with fresh_server(tcp=tcp) as server:
        url, first = server.url, server.pid
        put(url, "k", "v")
        server.kill()
        server.restart()
        assert (server.url, get(url, "k")) == (url, "v")
        assert server.pid != first
        server.pause()
        with redis.Redis.from_url(url, socket_timeout=0.1) as client, pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        assert get(url, "k") == "v"
        server.pause()
    assert not psutil.pid_exists(server.pid)
    assert not server.data_dir.exists()
