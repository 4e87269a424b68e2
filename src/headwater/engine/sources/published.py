"""Folders that are built once and then only read.

    NAME.lock      held while building, by one process of the machine at a time
    NAME.partial   being built; what a killed process left is removed by the next one
    NAME           complete, since it appeared by a rename

A folder that is not there whole is not there at all, so a reader needs no lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console


def published(folder: Path, usable: Callable[[Path], bool], build: Callable[[Path], None]) -> Path:
    """The folder, built first unless it is there and usable.

    `build` fills an empty folder and may raise: then nothing is published. Of processes that come
    at once one builds, and the others wait and use what it built.
    """
    if usable(folder):
        return folder
    with _locked(folder.with_name(folder.name + ".lock")):
        if not usable(folder):
            _build(folder, build)
    return folder


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        build(partial)
        for file in partial.iterdir():
            _sync(file)
        shutil.rmtree(folder, ignore_errors=True)  # there, but not usable
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock. The kernel releases it when the process dies, so it is never stale."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with Console(stderr=True).status(f"another process is making {path.stem}, waiting"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync(path: Path) -> None:
    """Wait until a file's bytes are on the disk: the rename must not outlive them."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
