"""From the engine's thread into an event loop: many pieces for one wake-up.

A step of 50 answers delivers 50 pieces within a moment. To wake the loop for each of them costs a
system call apiece, in the thread that the device waits for.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any


class Mailbox:
    """Takes items in any thread and puts them into queues of one loop, in their order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # whoever keeps mailboxes by their loops keeps no loop
        self._items: deque[tuple[asyncio.Queue[Any], Any]] = deque()
        self._is_called = False

    def into(self, queue: asyncio.Queue[Any], closed: Callable[[], None]) -> Callable[[Any], None]:
        """A function that puts items into a queue. closed: called instead when the loop is closed:
        nobody will ever listen."""

        def deliver(item: Any) -> None:
            self._items.append((queue, item))
            if not self._is_called:
                self._call(closed)

        return deliver

    def _call(self, closed: Callable[[], None]) -> None:
        self._is_called = True
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._empty)
                return
        except RuntimeError:
            pass
        self._is_called = False
        self._items.clear()
        closed()

    def _empty(self) -> None:
        # The flag first: who puts an item in from here on calls again, and what was put in before
        # is found below.
        self._is_called = False
        while self._items:
            queue, item = self._items.popleft()
            queue.put_nowait(item)
