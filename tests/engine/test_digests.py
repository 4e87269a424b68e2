"""Digests are remembered as long as the file is the same, and no longer."""

from __future__ import annotations

import hashlib
import os

import pytest

from headwater.engine.folders import cache_folder
from headwater.engine.sources import digests
from headwater.engine.sources.digests import file_digest, weights_digest


@pytest.fixture
def hashed(home, monkeypatch):
    """The files that were really hashed."""
    seen = []
    real = digests._hash
    monkeypatch.setattr(digests, "_hash", lambda path: seen.append(path.name) or real(path))
    return seen


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    return path


def test_a_file_is_hashed_once(file, hashed):
    assert file_digest(file) == file_digest(file) == hashlib.sha256(b"weights").hexdigest()
    assert len(hashed) == 1


def test_a_file_keeps_its_digest_when_its_folder_is_renamed(file, hashed, tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    file = file.rename(folder / file.name)
    file_digest(file)
    folder.rename(tmp_path / "b")
    file_digest(tmp_path / "b" / file.name)
    assert len(hashed) == 1


def test_a_changed_file_is_hashed_again(file, hashed):
    old = file_digest(file)
    file.write_bytes(b"longer weights")
    assert file_digest(file) != old


def test_a_change_that_keeps_size_and_modification_time_is_seen(file, hashed):
    old, stat = file_digest(file), file.stat()
    file.write_bytes(b"WEIGHTS")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file_digest(file) != old


def test_a_damaged_record_is_no_digest(file, hashed):
    right = file_digest(file)
    for record in (cache_folder() / "digests").iterdir():
        record.write_bytes(b'[7,0,0,"0000"')
    assert file_digest(file) == right


def test_no_place_to_remember_is_no_error(file, hashed, home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))  # a file where a folder would have to be
    assert file_digest(file) == hashlib.sha256(b"weights").hexdigest()


def test_no_weights_have_no_digest():
    with pytest.raises(ValueError, match="no weight files"):
        weights_digest([])


def test_weights_are_known_by_names_and_contents_in_any_order(home, tmp_path):
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    both = weights_digest([a, b])
    assert weights_digest([b, a]) == both
    a.write_bytes(b"2")
    b.write_bytes(b"1")
    assert weights_digest([a, b]) != both
