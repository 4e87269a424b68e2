"""Text on its way in and out of a command."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from headwater.errors import BadSetting


def say(text: str) -> None:
    """Print a line, or what a command found out.

    A reader that has gone (`| head`) loses the rest of it; the command goes on to its exit status.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Write to nobody from now on: the reader (`| head`) has seen enough, or the disk is full.

    Python would try again, and complain, while flushing at exit.
    """
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_text(named: str) -> str:
    """The text of a file, or of the standard input for "-". Raises BadSetting."""
    try:
        data = _input() if named == "-" else Path(named).expanduser().read_bytes()
    except OSError as error:
        raise BadSetting(f"{named} cannot be read: {error.strerror}.") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadSetting(f"{named} is no text in UTF-8.") from error


def _input() -> bytes:
    if sys.stdin is None:
        raise BadSetting("There is no standard input to read.")
    return sys.stdin.buffer.read()


def read_prompt(word: str) -> str:
    """A prompt as it was typed, or the standard input for "-", without the line end that a shell's
    `echo` puts behind it. Raises BadSetting."""
    return read_text("-").removesuffix("\n") if word == "-" else word


def short_path(path: Path) -> str:
    """A path as a user writes it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def size(count: int) -> str:
    """Bytes, in the largest unit of which there is one."""
    for unit, width in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= width:
            return f"{count / width:.4g} {unit}"
    return f"{count} bytes"


_UNSEEN = {code: None for code in (*range(32), 127, *range(0x80, 0xA0)) if chr(code) not in "\n\t"}


def harmless(text: str) -> str:
    """A model's text as it may be shown: in a terminal, escape sequences would be obeyed."""
    return text.translate(_UNSEEN) if sys.stdout.isatty() else text
