"""The secret is made once, is nobody else's to read, and survives a race."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.engine import secret
from headwater.engine.folders import state_folder
from headwater.engine.secret import load_secret
from headwater.errors import HeadwaterError

pytestmark = pytest.mark.usefixtures("home")


def test_it_is_made_once_and_read_from_then_on():
    first = load_secret()
    assert len(first) == 32
    assert load_secret() == first


def test_only_its_owner_may_read_it():
    load_secret()
    path = state_folder() / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_all_who_come_at_once_get_the_same_secret():
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: load_secret(), range(64)))) == 1
    assert [path.name for path in state_folder().iterdir()] == ["secret"]


def test_the_slower_of_two_makers_keeps_the_faster_ones_secret():
    first = load_secret()
    secret._create(state_folder() / "secret")
    assert load_secret() == first


def test_a_given_file_is_read_and_never_made(tmp_path):
    path = tmp_path / "fleet"
    with pytest.raises(HeadwaterError, match="cannot be read: No such file"):
        load_secret(path)
    assert not path.exists()
    path.write_text("ab" * 32)
    path.chmod(0o600)
    assert load_secret(path) == b"\xab" * 32


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_one_that_others_may_read_is_refused(tmp_path, mode):
    path = tmp_path / "fleet"
    path.write_text("ab" * 32)
    path.chmod(mode)
    with pytest.raises(HeadwaterError, match="chmod 600"):
        load_secret(path)


@pytest.mark.parametrize("content", [b"", b"ab" * 31, b"ab" * 33, b"password", b"\xff" * 32])
def test_what_is_no_secret_is_refused(tmp_path, content):
    path = tmp_path / "fleet"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(HeadwaterError, match="64 hexadecimal digits"):
        load_secret(path)
