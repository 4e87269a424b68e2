"""Who is let in: so many requests a tenant, so many that wait for their first token.

What is let in is served. More is refused at once, with a time after which to ask again: a queue
without a bound only moves a client's time-out to the end of it.
"""

from __future__ import annotations

import time
from collections import Counter

from headwater.server.errors import busy
from headwater.server.tenants import Tenant


class Seat:
    """A request's place since a time (monotonic seconds), until it leaves. Leaving twice does
    nothing."""

    def __init__(self, desk: Desk, tenant: Tenant) -> None:
        self.tenant = tenant
        self.since = time.monotonic()
        self._desk = desk
        self._waits = True
        self._left = False

    def served(self) -> None:
        """Its first token came: it waits no longer."""
        if self._waits:
            self._waits = False
            self._desk.waiting -= 1

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self.served()
            self._desk.busy[self.tenant.name] -= 1


class Desk:
    """Counts the requests of a server. For one event loop."""

    def __init__(self, most_waiting: int) -> None:
        self.waiting = 0
        self.busy: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()  # by tenant and reason
        self.is_closed = False
        self._most = most_waiting

    def enter(self, tenant: Tenant) -> Seat:
        """Raises ApiError, 429 when there is no place and 503 when the server is ending."""
        if self.is_closed:
            self.refused[tenant.name, "draining"] += 1
            raise busy(503, "The server is ending; ask another one.", code="draining", seconds=1)
        if self.busy[tenant.name] >= tenant.max_requests:
            self.refused[tenant.name, "quota"] += 1
            raise busy(
                429,
                f"{tenant.max_requests} requests are unfinished already, as many as you may have; "
                "wait for one.",
                code="too_many_requests",
                seconds=1,
            )
        if self.waiting >= self._most:
            self.refused[tenant.name, "queue"] += 1
            raise busy(
                429,
                f"{self._most} requests are waiting already; ask again later.",
                code="queue_full",
                seconds=2,
            )
        self.waiting += 1
        self.busy[tenant.name] += 1
        return Seat(self, tenant)
