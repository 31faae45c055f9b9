"""The command line as a user meets it: real processes on a real server, judged by their output and exit codes.

Rule of this file: nothing is imported from the command line; what is not printed is not known.
"""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from tests.e2e.command_line import PATIENCE_S, Cli
from tests.support.server import TestServer, free_port, fresh_server
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

NO_RUN = "00" + "0" * 24


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with fresh_server(tcp=True) as fresh:
        yield fresh


@pytest.fixture
def cli(server: TestServer, tmp_path: Path) -> Iterator[Cli]:
    """The command line on a server that holds nothing."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    made = Cli(tmp_path, RUNNER_REDIS_URL=server.url)
    yield made
    made.close()


@pytest.fixture
def working(cli: Cli) -> Cli:
    """The command line with a worker and a supervisor beside it."""
    cli.start("worker")
    cli.start("supervisor")
    until(lambda: cli.ask("workers"), PATIENCE_S, "worker")
    return cli


def refusal(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The error that a command with --json printed."""
    error: dict[str, Any] = json.loads(ran.stderr.splitlines()[-1])["error"]
    return error


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def text_of(followed: list[dict[str, Any]]) -> str:
    return "".join(line["chunk"].get("delta", "") for line in followed if "chunk" in line)


def test_bad_input_is_refused_with_2_and_nothing_is_stored(cli: Cli) -> None:
    refused = {
        "no agent named 'nobody'": ["submit", "nobody"],
        "no JSON": ["submit", "echo", "--input-json", "{bad"],
        "NaN is no JSON number": ["submit", "echo", "--input-json", "[NaN]"],
        "nested too deeply": ["submit", "echo", "--input-json", "[" * 100_000],
        "attempts": ["submit", "echo", "--budget", "attempts=-1"],
        "NaN is no limit": ["submit", "echo", "--budget", "no_progress_ms=nan"],
        "lost_wrokers": ["submit", "echo", "--budget", "lost_wrokers=1"],
        "NAME=VALUE": ["submit", "echo", "--budget", "attempts"],
        "twice": ["submit", "echo", "--budget", "attempts=1", "--budget", "attempts=2"],
        "not allowed with": ["submit", "echo", "--message", "a", "--input-json", "1"],
        "idempotency key": ["submit", "echo", "--key", "a b"],
        "--thread: it is empty": ["submit", "echo", "--thread", ""],
        "is not a run id": ["show", "nonsense"],
        "--limit": ["list", "--limit", "0"],
        "--processes": ["worker", "--processes", "0"],
        "log level": ["list", "--log-level", "loud"],
        "required": [],
    }
    for why, words in refused.items():
        ran = cli.run(*words)
        assert (ran.returncode, ran.stdout) == (2, ""), words
        assert ran.stderr.startswith("error: "), words
        assert len(ran.stderr.splitlines()) == 1, words
        assert why in ran.stderr
    assert cli.ask("list") == []


def test_an_input_over_its_limit_is_refused_with_its_facts(cli: Cli) -> None:
    small = cli.with_env(RUNNER_INPUT_BYTES="256")
    ran = small.run("submit", "echo", "--message", "x" * 300, "--json")
    assert ran.returncode == 2
    error = refusal(ran)
    assert (error["type"], error["limit"], error["option"]) == ("TooLarge", 256, "RUNNER_INPUT_BYTES")
    assert error["size"] > 300
    assert cli.ask("list") == []


def test_wrong_settings_are_refused_with_2(cli: Cli) -> None:
    for variable, value in (
        ("RUNNER_REDIS_URL", "http://127.0.0.1:1"),
        ("RUNNER_LEASE_MS", "nan"),
        ("RUNNER_BUDGET_ATTEMPTS", "-3"),
        ("RUNNER_LOG_LEVEL", "loud"),
    ):
        ran = cli.with_env(**{variable: value}).run("list", "--json")
        assert ran.returncode == 2, variable
        assert refusal(ran)["type"] == "InvalidInput"


def test_no_server_is_a_failure_without_a_traceback(cli: Cli) -> None:
    url = f"redis://:secret@127.0.0.1:{free_port()}"
    nowhere = cli.with_env(RUNNER_REDIS_URL=url, RUNNER_COMMAND_RETRIES="0")
    ran = nowhere.run("submit", "echo", "--message", "hi", "--json")
    assert ran.returncode == 1
    assert refusal(ran)["type"] == "ServerUnreachable"
    assert "secret" not in ran.stderr
    for words in (["worker"], ["supervisor"], ["list"]):
        ran = nowhere.run(*words)
        assert ran.returncode == 1, words
        assert ran.stderr.splitlines()[-1].startswith("error: no server answers"), words
    ran = nowhere.run("doctor")
    assert ran.returncode == 1
    assert "fail  server" in ran.stdout
    assert "secret" not in ran.stdout + ran.stderr


class OldServer(socketserver.StreamRequestHandler):
    """Speaks enough of the protocol to say that it is Redis 6.2."""

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].upper())
            self.wfile.write(self._answer(words[0]))

    def _answer(self, command: bytes) -> bytes:
        if command == b"INFO":
            info = b"# Server\r\nredis_version:6.2.14\r\n"
            return b"$%d\r\n%s\r\n" % (len(info), info)
        return b"-ERR unknown command\r\n" if command == b"CONFIG" else b"+OK\r\n"


@contextmanager
def old_server() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OldServer) as listening:
        serving = threading.Thread(target=listening.serve_forever)
        serving.start()
        try:
            yield f"redis://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            serving.join()


def test_a_server_below_the_floor_is_refused(cli: Cli) -> None:
    with old_server() as url:
        old = cli.with_env(RUNNER_REDIS_URL=url)
        ran = old.run("list", "--json")
        assert ran.returncode == 1
        assert refusal(ran)["type"] == "ServerTooOld"
        assert refusal(ran)["version"] == "6.2.14"
        ran = old.run("doctor", "--json")
        assert ran.returncode == 1
        server = next(check for check in json.loads(ran.stdout)["checks"] if check["name"] == "server")
        assert server["status"] == "fail"
        assert "Redis 7.0" in server["advice"]


def test_a_server_that_may_drop_runs_is_refused_unless_that_is_accepted(cli: Cli, server: TestServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            ran = cli.run("submit", "echo", "--json")
            assert ran.returncode == 1
            assert refusal(ran)["policy"] == "allkeys-lru"
            assert client.dbsize() == 0
            ran = cli.run("doctor")
            assert ran.returncode == 1
            assert "fail  eviction" in ran.stdout
            assert cli.with_env(RUNNER_ALLOW_EVICTION="true").run("submit", "echo").returncode == 0
        finally:
            client.config_set("maxmemory-policy", "noeviction")


def test_an_unknown_run_is_a_failure_that_names_it(cli: Cli) -> None:
    for command in ("show", "explain", "cancel", "tail"):
        ran = cli.run(command, NO_RUN, "--json")
        assert (ran.returncode, ran.stdout) == (1, ""), command
        error = refusal(ran)
        assert (error["type"], error["run_id"]) == ("RunNotFound", NO_RUN), command


def test_a_queued_run_can_be_looked_at_and_is_cancelled_at_once(cli: Cli) -> None:
    submitted = cli.ask("submit", "echo", "--message", "hi", "--thread", "t-1", "--budget", "no_progress_ms=none")
    run_id = submitted["run_id"]
    assert submitted == {"run_id": run_id, "created": True}
    shown = cli.ask("show", run_id)
    assert (shown["agent"], shown["state"], shown["thread"], shown["seq"]) == ("echo", "queued", "t-1", 0)
    assert (shown["reason"], shown["started_at"], shown["ended_at"], shown["text"]) == (None, None, None, "")
    assert shown["message"]["parts"] == []
    assert [run["run_id"] for run in cli.ask("list")] == [run_id]
    assert run_id in cli.run("list").stdout
    explained = cli.ask("explain", run_id)
    assert [item["what"] for item in explained["transitions"]] == ["created"]
    assert "no worker is alive" in explained["next"]["words"][0]
    assert cli.ask("cancel", run_id) == {"run_id": run_id, "landed": True, "state": "cancelled"}
    assert cli.ask("cancel", run_id) == {"run_id": run_id, "landed": False, "state": "cancelled"}
    assert cli.ask("list") == []
    whats = [item["what"] for item in cli.ask("explain", run_id)["transitions"]]
    assert whats == ["created", "cancel-requested", "cancelled"]
    followed = cli.run("tail", run_id, "--json")
    assert followed.returncode == 1
    assert lines(followed.stdout)[-1]["terminal"]["reason"] == "cancel_requested"


def test_a_key_gives_the_same_run_and_another_payload_is_a_conflict(cli: Cli) -> None:
    first = cli.ask("submit", "echo", "--message", "hi", "--key", "k-1")
    assert cli.ask("submit", "echo", "--message", "hi", "--key", "k-1") == {**first, "created": False}
    ran = cli.run("submit", "echo", "--message", "other", "--key", "k-1", "--json")
    assert ran.returncode == 2
    assert refusal(ran)["run_id"] == first["run_id"]
    assert len(cli.ask("list")) == 1


def test_the_doctor_warns_of_an_empty_house_and_fails_when_runs_wait_in_it(cli: Cli) -> None:
    diagnosis = cli.ask("doctor")
    statuses = {check["name"]: check["status"] for check in diagnosis["checks"]}
    assert diagnosis["ok"] is True
    assert (statuses["server"], statuses["workers"], statuses["supervisor"]) == ("ok", "warn", "warn")
    assert all(check["advice"] for check in diagnosis["checks"] if check["status"] != "ok")
    cli.ask("submit", "echo", "--message", "hi")
    ran = cli.run("doctor")
    assert ran.returncode == 1
    assert "fail  workers" in ran.stdout
    assert "runner worker" in ran.stdout


def test_agents_that_cannot_be_loaded_here_are_the_workers_to_judge(cli: Cli) -> None:
    elsewhere = cli.with_env(RUNNER_AGENTS="not_installed_here:agents")
    ran = elsewhere.run("submit", "somebody", "--message", "hi")
    assert ran.returncode == 0
    assert "cannot be checked here" in ran.stderr
    assert [run["agent"] for run in cli.ask("list")] == ["somebody"]
    assert elsewhere.run("worker").returncode == 2


def test_waiting_is_explained_and_an_interrupt_says_how_to_go_on(cli: Cli) -> None:
    following = cli.start("submit", "echo", "--message", "hi", "--tail")
    assert following.stderr is not None
    run_line = following.stderr.readline()
    assert "none is alive: start one with `runner worker`" in following.stderr.readline()
    following.send_signal(signal.SIGINT)
    _, rest = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 130
    run_id = run_line.split()[1].rstrip(":")
    assert f"runner tail {run_id} --after 0" in rest
    assert "Traceback" not in rest
    assert cli.ask("show", run_id)["state"] == "queued"


def test_a_turn_is_submitted_run_and_followed(working: Cli) -> None:
    ran = working.run("submit", "echo", "--message", "one two three", "--tail", "--json")
    assert ran.returncode == 0, ran.stderr
    submitted, *chunks, last = lines(ran.stdout)
    assert submitted["created"] is True
    assert [line["seq"] for line in chunks] == list(range(1, len(chunks) + 1))
    assert text_of(chunks) == "one two three"
    assert last["terminal"]["state"] == "completed"
    shown = working.ask("show", submitted["run_id"])
    assert (shown["text"], shown["state"], shown["reason"]) == ("one two three", "completed", "finished")
    assert (shown["attempts"], shown["epoch"], shown["seq"]) == (1, 1, len(chunks))
    again = lines(working.run("tail", submitted["run_id"], "--after", "3", "--json").stdout)
    assert again == [*chunks[3:], last]
    assert working.run("tail", submitted["run_id"], "--after", "999").returncode == 2
    plain = working.run("submit", "echo", "--message", "-", "--tail", stdin="ein kleiner Stern \U0001f31f\x1b[2J")
    assert plain.stdout.splitlines() == ["ein kleiner Stern \U0001f31f\ufffd[2J", "[completed: finished]"]


def test_a_run_that_does_not_complete_is_a_failure(working: Cli) -> None:
    ran = working.run("submit", "counter", "--input-json", '{"n": -1}', "--tail")
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-1].startswith("[failed: agent_error")


def test_another_attempt_is_marked_and_the_text_is_whole(working: Cli) -> None:
    pid = working.ask("workers")[0]["pid"]
    run_id = working.ask("submit", "counter", "--input-json", '{"n": 60, "pace_ms": 100}')["run_id"]
    following = working.start("tail", run_id)
    assert following.stdout is not None
    first = following.stdout.read(1)
    os.kill(pid, signal.SIGKILL)
    out = first + following.stdout.read()
    assert following.wait(timeout=PATIENCE_S) == 0
    assert "\n[attempt 2 continues]\n" in out
    numbers = [word for line in out.splitlines() if not line.startswith("[") for word in line.split()]
    assert numbers == [str(number) for number in range(60)]
    explained = working.run("explain", run_id).stdout
    assert "its worker is gone: signal SIGKILL" in explained
    assert "ended as completed" in explained


def test_a_reader_that_goes_away_is_no_error(working: Cli) -> None:
    run_id = working.ask("submit", "counter", "--input-json", '{"n": 100000, "pace_ms": 5}')["run_id"]
    following = working.start("tail", run_id, "--json")
    assert following.stdout is not None
    assert following.stderr is not None
    assert json.loads(following.stdout.readline())["seq"] == 1
    following.stdout.close()
    assert following.wait(timeout=PATIENCE_S) == 1
    assert following.stderr.read() == ""
    assert working.ask("cancel", run_id)["landed"] is True
    until(lambda: working.ask("show", run_id)["state"] == "cancelled", PATIENCE_S, "cancel")


def lives(program: psutil.Process) -> bool:
    """Whether it runs; one that ended and was not collected by anybody does not."""
    try:
        return program.is_running() and program.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children_named(process: subprocess.Popen[str], name: str) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if lives(child) and name in child.cmdline()]


def embedded_pid(place: Path) -> int:
    pid: int = json.loads((place / "data" / "server.json").read_text(encoding="utf-8"))["pid"]
    return pid


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[tuple[Cli, subprocess.Popen[str]]]:
    """`runner up` on its own embedded server, which ends after the test."""
    cli = Cli(tmp_path)
    up = cli.start("up", "--processes", "1")
    yield cli, up
    cli.close()
    pid = embedded_pid(tmp_path)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not psutil.pid_exists(pid), PATIENCE_S, "end of the server")


def test_up_is_a_whole_deployment_that_repairs_itself(
    everything: tuple[Cli, subprocess.Popen[str]], tmp_path: Path
) -> None:
    cli, up = everything
    ran = cli.run("submit", "echo", "--message", "hi", "--tail")
    assert (ran.returncode, ran.stdout) == (0, "hi\n[completed: finished]\n")
    supervisor = until(lambda: children_named(up, "supervisor"), PATIENCE_S, "supervisor")[0]
    supervisor.kill()
    until(lambda: [c for c in children_named(up, "supervisor") if c.pid != supervisor.pid], PATIENCE_S, "another")
    lost = embedded_pid(tmp_path)
    os.kill(lost, signal.SIGKILL)
    until(lambda: embedded_pid(tmp_path) != lost, PATIENCE_S, "another server")
    assert cli.run("submit", "echo", "--message", "again", "--tail").returncode == 0
    programs = psutil.Process(up.pid).children(recursive=True)
    up.send_signal(signal.SIGINT)
    out, _ = up.communicate(timeout=PATIENCE_S)
    assert up.returncode == 0
    assert "runner submit storyteller" in out
    assert [program.pid for program in programs if lives(program)] == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells a process that its parent was killed")
def test_nothing_is_left_when_up_is_killed(everything: tuple[Cli, subprocess.Popen[str]]) -> None:
    cli, up = everything
    until(lambda: cli.ask("workers"), PATIENCE_S, "worker")
    until(lambda: cli.run("doctor").stdout.count("1 alive") == 2, PATIENCE_S, "supervisor")
    programs = psutil.Process(up.pid).children(recursive=True)
    up.kill()
    until(lambda: not any(lives(program) for program in programs), PATIENCE_S, "end of the programs")
    assert cli.ask("workers") == []
