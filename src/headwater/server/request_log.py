"""A line a request, for the lab: when, whose, how long, how much was reused; no prompts.

Of a prompt the names of its chunks are written: keyed digests of everything up to their ends (see
`identity/names.py`). Equal names are equal prefixes, so hits, working sets and policies can be
studied; what was said cannot be read from them, nor guessed without the server's secret.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Protocol

import msgspec

from headwater.errors import BadSetting

log = logging.getLogger(__name__)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """
    at: seconds since 1970 when it arrived. tenant: whose. width: tokens a chunk.
    chunks: names of the prompt's whole chunks, in order.
    """

    at: float
    tenant: str
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    first_token: float
    total: float
    outcome: str
    width: int
    chunks: list[str]


class RequestLog(Protocol):
    """Hears of every request that has ended."""

    def write(self, line: Line) -> None: ...

    def close(self) -> None: ...


class NoLog:
    """Forgets everything."""

    def write(self, line: Line) -> None:
        pass

    def close(self) -> None:
        pass


class FileLog:
    """Lines of JSON at the end of a file that only its owner may read."""

    def __init__(self, path: Path) -> None:
        """Raises BadSetting when the file cannot be written."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.fchmod(descriptor, 0o600)  # it may have been there already
        except OSError as error:
            raise BadSetting(f"The log {path} cannot be written: {error.strerror}.") from error
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, line: Line) -> None:
        """A full disk ends the log, not the service."""
        if not self._file.closed:
            try:
                self._file.write(msgspec.json.encode(line) + b"\n")
            except OSError:
                log.exception("The request log ends here.")
                self._file.close()

    def close(self) -> None:
        self._file.close()


def request_log(path: str | None) -> RequestLog:
    return NoLog() if path is None else FileLog(Path(path).expanduser())
