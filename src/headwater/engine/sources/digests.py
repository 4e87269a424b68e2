"""Digests of big files, computed once and remembered.

Hashing half a gigabyte takes a second or two, which a start should not pay each time. A digest is
remembered with the file's size and its times of modification and change, and used while these
stay the same. The time of change is there because a copying tool can set the modification time to
anything, the size included by chance, but not the time of change.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headwater.engine.folders import cache_folder


class Known(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when it was hashed. Times are nanoseconds since 1970."""

    size: int
    modified: int
    changed: int
    sha256: str


def file_digest(path: Path) -> str:
    """SHA-256 of a file, from memory when it has not changed."""
    stat = path.stat()
    seen = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    # By device and inode, not by path: a file keeps its digest when its folder is renamed.
    record = cache_folder() / "digests" / f"{stat.st_dev:x}-{stat.st_ino:x}"
    known = _recall(record)
    if known is None or seen != (known.size, known.modified, known.changed):
        known = Known(*seen, _hash(path))
        _remember(record, known)
    return known.sha256


def weights_digest(files: Iterable[Path]) -> str:
    """SHA-256 over the names and digests of a model's weight files, in the order of their names.

    Raises ValueError for none: a digest of nothing would be one for all models alike.
    """
    files = sorted(files)
    if not files:
        raise ValueError("no weight files to digest")
    lines = "".join(f"{file_digest(path)}  {path.name}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recall(record: Path) -> Known | None:
    try:
        return msgspec.json.decode(record.read_bytes(), type=Known)
    except (OSError, msgspec.DecodeError):
        return None  # never hashed, or a damaged record: hash again


def _remember(record: Path, known: Known) -> None:
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=record.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(known))
        os.replace(name, record)  # noqa: PTH105 - replaces in one step, as Path.replace, with a str
    except OSError:
        return  # a full or read-only disk costs a second at the next start, nothing else
