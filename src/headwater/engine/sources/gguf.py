"""GGUF files as safetensors folders, converted once and kept.

The engine reads one format. Converting at every start would be simpler and take half a minute;
reading GGUF ourselves would be a second loader to keep right.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rich.console import Console

from headwater.engine.folders import cache_folder
from headwater.engine.sources.digests import weights_digest
from headwater.engine.sources.published import published
from headwater.errors import ModelRefused

_MANIFEST = "headwater.json"
_VERSION = 1  # of the conversion; another one is converted again


class Manifest(msgspec.Struct, frozen=True):
    """What a converted folder was made from (SHA-256 of the GGUF file), and what it must hold."""

    version: int
    source: str
    weights: str


def converted(source: str, name: str, get: Callable[[Path], Path]) -> Path:
    """The folder made from the GGUF file with the SHA-256 `source`.

    get: the file's path, given a scratch folder to fetch it into; called only when it is needed.
    Raises ModelRefused when the file cannot be converted.
    """

    def build(folder: Path) -> None:
        with TemporaryDirectory(dir=folder) as scratch:
            convert(get(Path(scratch)), folder)
        weights = weights_digest(folder.glob("*.safetensors"))
        manifest = Manifest(_VERSION, source, weights)
        (folder / _MANIFEST).write_bytes(msgspec.json.encode(manifest))

    target = cache_folder() / "models" / f"{source[:16]}-{name}"
    return published(target, lambda folder: intact(folder, source), build)


def intact(folder: Path, source: str) -> bool:
    """Whether a folder holds what its manifest says, made from that source by this version."""
    try:
        manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return False
    weights = weights_digest(folder.glob("*.safetensors"))
    return manifest == Manifest(_VERSION, source, weights)


def convert(file: Path, folder: Path) -> None:
    """Convert a GGUF file into a folder, in a child process. Raises ModelRefused."""
    command = [sys.executable, "-m", "headwater.engine.sources.convert", str(file), str(folder)]
    with Console(stderr=True).status(f"converting {file.name} (once, about half a minute)"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command, without a shell
    if done.returncode:
        reason = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise ModelRefused(f"{file} cannot be converted: {reason.rstrip('.')}.")
