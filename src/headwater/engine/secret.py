"""The secret that namespaces are keyed with: made once, then read.

It is 32 random bytes in hexadecimal with a line end, so that it can be copied to the other
machines of a fleet as text. Who reads it can compute any tenant's namespace: the file is 0600, and
one that others may read is refused rather than used.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

from headwater.engine.folders import state_folder
from headwater.errors import BadSetting
from headwater.identity.namespace import SECRET_BYTES


def secret_of(given: bytes | Path | str | None) -> bytes:
    """A secret as a user gives it: itself, its file, or None for this user's own.

    Raises BadSetting for bytes of another length, and as `load_secret`.
    """
    if not isinstance(given, bytes):
        return load_secret(given)
    if len(given) != SECRET_BYTES:
        raise BadSetting(f"The secret must have {SECRET_BYTES} bytes, but has {len(given)}.")
    return given


def load_secret(path: Path | str | None = None) -> bytes:
    """The secret in a file given by the user, or this user's own, made when there is none yet.

    Raises BadSetting when the file is absent, readable by others or no secret, or cannot be made.
    """
    if path is not None:
        return _read(Path(path).expanduser())
    own = state_folder() / "secret"
    try:
        if not own.exists():
            _create(own)
    except OSError as error:
        raise BadSetting(f"The secret {own} cannot be made: {error.strerror}.") from error
    return _read(own)


def _create(path: Path) -> None:
    """Make a secret, unless another process was faster; then leave its secret in place."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".secret-")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(SECRET_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # A hard link, not a rename: it appears whole, and fails where a rename would replace the
        # secret that another process has already read.
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        Path(name).unlink()


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(4096)
    except OSError as error:
        raise BadSetting(f"The secret {path} cannot be read: {error.strerror}.") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadSetting(f"The secret {path} is open to other users; run chmod 600 on it.")
    try:
        secret = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise BadSetting(
            f"{path} holds no secret: {2 * SECRET_BYTES} hexadecimal digits were expected."
        )
    return secret
