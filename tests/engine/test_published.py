"""A published folder is there whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.engine.sources.published import published


def complete(folder):
    return (folder / "whole").is_file()


def build(folder):
    (folder / "part").write_text("1")
    (folder / "whole").write_text("2")


def test_it_is_built_when_absent_and_then_used(tmp_path):
    folder = published(tmp_path / "model", complete, build)
    assert complete(folder)

    def never(_):
        raise AssertionError("built twice")

    assert published(folder, complete, never) == folder


def test_a_failed_build_publishes_nothing(tmp_path):
    def fails(folder):
        (folder / "part").write_text("1")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        published(tmp_path / "model", complete, fails)
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "model.partial").exists()
    assert complete(published(tmp_path / "model", complete, build))


def test_what_is_there_but_unusable_is_replaced(tmp_path):
    damaged = tmp_path / "model"
    damaged.mkdir()
    (damaged / "rest").write_text("0")
    published(damaged, complete, build)
    assert sorted(path.name for path in damaged.iterdir()) == ["part", "whole"]


def test_of_many_who_come_at_once_one_builds(tmp_path):
    builders = []

    def counted(folder):
        builders.append(folder)
        build(folder)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: published(tmp_path / "model", complete, counted), range(8)))
    assert len(builders) == 1


KILLED = """
import os, sys
from pathlib import Path
from headwater.engine.sources.published import published

def dies(folder):
    (folder / "whole").write_text("half of it")
    os.kill(os.getpid(), 9)

published(Path(sys.argv[1]), lambda folder: False, dies)
"""


def test_a_killed_build_leaves_nothing_that_could_be_used(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "model")], check=False)
    assert killed.returncode == -9
    assert not (tmp_path / "model").exists()
    folder = published(tmp_path / "model", complete, build)
    assert sorted(path.name for path in folder.iterdir()) == ["part", "whole"]
    assert not (tmp_path / "model.partial").exists()
