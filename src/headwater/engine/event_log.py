"""Where a live engine's events go, so that the run can be replayed (see `schedule.replay`)."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from headwater.errors import BadSetting
from headwater.schedule.events import Action, AnyEvent
from headwater.schedule.recipe import Recipe
from headwater.schedule.replay import header_line, record_line


class EventLog(Protocol):
    """Hears of every event, in order, by the one thread that handles them."""

    def write(self, at: float, event: AnyEvent, actions: Sequence[Action]) -> None: ...

    def close(self) -> None: ...

    def forked(self) -> None: ...


class NoLog:
    """Forgets everything."""

    def write(self, at: float, event: AnyEvent, actions: Sequence[Action]) -> None:
        pass

    def close(self) -> None:
        pass

    def forked(self) -> None:
        pass


class FileLog:
    """Lines of JSON in a new file that only its owner may read: prompts stand in it.

    When it can be written no further (a full disk) it ends there: serving goes on, and what was
    written replays.
    """

    def __init__(self, path: Path, recipe: Recipe) -> None:
        """Begin the log. Raises BadSetting when the file exists or cannot be made."""
        try:
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except OSError as error:
            raise _cannot_be_made(path, error.strerror) from error
        self._write(header_line(recipe))

    def write(self, at: float, event: AnyEvent, actions: Sequence[Action]) -> None:
        if not self._file.closed:
            self._write(record_line(at, event, actions))

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()

    def forked(self) -> None:
        """In a child: what the parent has yet to write is not written a second time from here."""
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError:
            self.close()


def event_log(path: Path | None, recipe: Recipe) -> EventLog:
    return NoLog() if path is None else FileLog(path, recipe)


def log_path(given: Path | str | None) -> Path | None:
    """Where a log shall be. Raises BadSetting for a place that is seen to be wrong already."""
    if given is None:
        return None
    path = Path(given).expanduser()
    if path.exists():
        raise _cannot_be_made(path, os.strerror(errno.EEXIST))
    if not path.parent.is_dir():
        raise _cannot_be_made(path, os.strerror(errno.ENOENT))
    return path


def _cannot_be_made(path: Path, why: str | None) -> BadSetting:
    return BadSetting(f"The log {path} cannot be made: {why}.")
