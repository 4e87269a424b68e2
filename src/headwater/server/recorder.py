"""What is remembered of requests that have ended: metrics, the last few, and the request log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import msgspec

from headwater.cache.tokens import count
from headwater.engine.results import Timing
from headwater.observe.explain import Report
from headwater.observe.metrics import Metrics
from headwater.server.request_log import Line, NoLog, RequestLog

LAST = 200
"""Requests that are remembered for who looks at the page."""

WIDTH = 16
"""Tokens a chunk of the request log."""

NamesOf = Callable[[bytes, str, str, int], list[str]]
"""(packed prompt, domain, salt, width) -> names of its whole chunks"""


class Ended(msgspec.Struct, frozen=True):
    """A generation that has ended: whose it was, its prompt, and what it came to."""

    tenant: str
    domain: str
    salt: str
    prompt: bytes
    outcome: str
    cache: Report
    timing: Timing


class Entry(msgspec.Struct, frozen=True):
    """A request that has ended: when (seconds since 1970), whose, and what its cache did."""

    at: float
    tenant: str
    outcome: str
    cache: Report
    timing: Timing


class Recorder:
    """For one event loop."""

    def __init__(self, metrics: Metrics, log: RequestLog, names_of: NamesOf) -> None:
        self.metrics = metrics
        self.last: deque[Entry] = deque(maxlen=LAST)
        self._log = log
        self._names_of = names_of

    def ended(self, ended: Ended) -> None:
        """Remember a generation that is complete or was cut off."""
        self.metrics.count(ended.tenant, ended.outcome, ended.cache)
        if ended.outcome == "complete":
            self.metrics.time(ended.timing.first_token, ended.timing.total)
        entry = Entry(time.time(), ended.tenant, ended.outcome, ended.cache, ended.timing)
        self.last.append(entry)
        if not isinstance(self._log, NoLog):
            self._log.write(self._line(ended))

    def last_of(self, tenant: str | None) -> list[Entry]:
        """The last requests, of one tenant or of all, newest first."""
        return [e for e in reversed(self.last) if tenant is None or e.tenant == tenant]

    def close(self) -> None:
        self._log.close()

    def _line(self, ended: Ended) -> Line:
        return Line(
            at=time.time() - ended.timing.total,
            tenant=ended.tenant,
            prompt_tokens=count(ended.prompt),
            cached_tokens=ended.cache.reused,
            generated_tokens=ended.cache.generated,
            first_token=ended.timing.first_token,
            total=ended.timing.total,
            outcome=ended.outcome,
            width=WIDTH,
            chunks=self._names_of(ended.prompt, ended.domain, ended.salt, WIDTH),
        )
