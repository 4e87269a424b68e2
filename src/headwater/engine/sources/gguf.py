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
from headwater.engine.sources.digests import file_digest
from headwater.engine.sources.published import published
from headwater.errors import ModelRefused

_MANIFEST = "headwater.json"
_NEEDED = {"config.json", "model.safetensors", "tokenizer.json"}
_VERSION = 2  # of the conversion; another one is converted again


class Manifest(msgspec.Struct, frozen=True):
    """What a converted folder was made from (SHA-256 of the GGUF file), and what it must hold.

    files: the SHA-256 of each by its name, the manifest aside.
    """

    version: int
    source: str
    files: dict[str, str]


def converted(source: str, name: str, get: Callable[[Path], Path]) -> Path:
    """The folder made from the GGUF file with the SHA-256 `source`.

    get: the file's path, given a scratch folder to fetch it into; called only when it is needed.
    Raises ModelRefused when the file cannot be converted.
    """

    def build(folder: Path) -> None:
        with TemporaryDirectory(dir=folder) as scratch:
            file = get(Path(scratch))
            convert(file, folder)
            if file_digest(file) != source:
                raise ModelRefused(f"{file} changed while it was converted; try again.")
        manifest = Manifest(_VERSION, source, _files(folder))
        if not manifest.files.keys() >= _NEEDED:
            raise ModelRefused(f"{name} cannot be converted: a part of the model is missing.")
        (folder / _MANIFEST).write_bytes(msgspec.json.encode(manifest))

    return published(_target(source, name), lambda folder: intact(folder, source), build)


def already_converted(source: str, name: str) -> Path | None:
    """The folder that `converted` would give, if it need not be made first."""
    target = _target(source, name)
    return target if intact(target, source) else None


def _target(source: str, name: str) -> Path:
    return cache_folder() / "models" / f"{source[:16]}-{name}"


def intact(folder: Path, source: str) -> bool:
    """Whether a folder holds what its manifest says, made from that source by this version."""
    try:
        manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=Manifest)
        return manifest == Manifest(_VERSION, source, _files(folder))
    except (OSError, msgspec.DecodeError):
        return False


def _files(folder: Path) -> dict[str, str]:
    """The digests of all files, since each may change the model: one too many, too."""
    files = (file for file in folder.iterdir() if file.is_file() and file.name != _MANIFEST)
    return {file.name: file_digest(file) for file in sorted(files)}


def convert(file: Path, folder: Path) -> None:
    """Convert a GGUF file into a folder, in a child process. Raises ModelRefused."""
    command = [sys.executable, "-m", "headwater.engine.sources.convert", str(file), str(folder)]
    with Console(stderr=True).status(f"converting {file.name} (once, about half a minute)"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command, without a shell
    if done.returncode:
        reason = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise ModelRefused(f"{file} cannot be converted: {reason.rstrip('.')}.")
