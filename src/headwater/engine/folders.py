"""Where Headwater keeps files on a user's machine (XDG Base Directory Specification)."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Files that can be made again: converted models, digests."""
    return _base("XDG_CACHE_HOME", ".cache") / "headwater"


def state_folder() -> Path:
    """Files that cannot be made again: the secret."""
    return _base("XDG_STATE_HOME", ".local/state") / "headwater"


def _base(variable: str, default: str) -> Path:
    # The specification says that a relative path in the variable is to be ignored.
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / default
