"""What is typed into a command, by nobody at a keyboard and by somebody."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

PATIENCE = 60
"""Seconds, for a machine that is busy with other things."""


class Lines(list):
    """A standard input that is no terminal."""

    def __init__(self, text):
        super().__init__(text.splitlines(keepends=True))

    def isatty(self):
        return False


class Terminal:
    """A command with somebody at the keyboard. To be used in a `with` block."""

    def __init__(self, *words):
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=os.environ | {"TERM": "dumb"},
        )
        os.close(theirs)
        self._seen = ""

    def type(self, text):
        os.write(self._ours, text.encode())

    def see(self, pattern):
        """Wait for something to be shown behind what was seen before."""
        ends = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self._seen)):
            left = ends - time.monotonic()
            assert left > 0, f"{pattern!r} was never shown, but {self._seen!r}"
            if select.select([self._ours], [], [], left)[0]:
                try:
                    self._seen += os.read(self._ours, 4096).decode(errors="replace")
                except OSError:  # so Linux says that the other side is closed
                    raise AssertionError(f"it ended with {self._seen!r}") from None
        self._seen = self._seen[found.end() :]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
