"""Metrics in Prometheus' format: names, units and help as its guidelines have them.

Tokens of prompts are counted once, by where their KV came from; what is computed again after a
preemption is a counter of its own. Numbers of the moment are read when they are scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater.observe.explain import Report, Sources, Waits
from headwater.schedule.account import MissKind

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's numbers at the time of a scrape.

    pages: by state (free, cached, private, in_io). sequences: by state (running, loading, waiting).
    pinned, evicted: pages. steps: computed so far. shares: cached pages by share of the pool.
    unfinished: requests by tenant. unanswered: those of them without a first token.
    refused: requests by tenant and reason.
    """

    pages: dict[str, int]
    page_bytes: int
    pinned: int
    evicted: int
    sequences: dict[str, int]
    leases: int
    promises: int
    holds: int
    steps: int
    shares: dict[str, int]
    ready: bool
    info: dict[str, str]
    unfinished: dict[str, int]
    unanswered: int
    refused: dict[tuple[str, str], int]


class Metrics:
    """All metrics of a server."""

    def __init__(self, moment: Callable[[], Moment | None], tenants: Iterable[str] = ()) -> None:
        """
        moment: asked at every scrape; None when nobody can answer.
        tenants: whose counters stand at zero from the beginning, so that their first request shows
            in a rate.
        """
        self.registry = _Registry()
        counter = partial(Counter, registry=self.registry, namespace="headwater")
        histogram = partial(
            Histogram, registry=self.registry, namespace="headwater", buckets=SECONDS
        )
        self._prompt = counter(
            "prompt_tokens",
            "Tokens of prompts, by where their KV came from; computed is what was not reused.",
            ["tenant", "source"],
        )
        self._generated = counter("generated_tokens", "Tokens drawn for answers.", ["tenant"])
        self._recomputed = counter(
            "recomputed_tokens",
            "Tokens computed again after preemptions; no other counter has them again.",
            ["tenant"],
        )
        self._requests = counter(
            "requests", "Requests that have ended, by how.", ["tenant", "outcome"]
        )
        self._lookups = counter(
            "lookups",
            "Requests that have ended, by why reuse of their prompt ended where it did.",
            ["reason"],
        )
        self._preemptions = counter(
            "preemptions", "Answers that gave way to others and began again."
        )
        self._waits = histogram(
            "wait_seconds",
            "Waiting before a prompt was computed: for room (queue), for KV that another request "
            "was computing (promise), for KV that was loaded (load).",
            ["cause"],
        )
        self._first = histogram(
            "time_to_first_token_seconds",
            "From a request's arrival to its first token.",
        )
        self._total = histogram(
            "request_duration_seconds",
            "From a request's arrival to its last token.",
        )
        self.registry.register(_Moments(moment))
        self._begin(tenants)

    def _begin(self, tenants: Iterable[str]) -> None:
        """Make the series that are known to come; they stand at zero."""
        for reason in get_args(MissKind):
            self._lookups.labels(reason)
        for cause in Waits.__struct_fields__:
            self._waits.labels(cause)
        for tenant in tenants:
            self._requests.labels(tenant, "complete")
            self._generated.labels(tenant)
            self._recomputed.labels(tenant)
            for source in Sources.__struct_fields__:
                self._prompt.labels(tenant, source)

    def count(self, tenant: str, outcome: str, report: Report) -> None:
        """Count a request that has ended."""
        for source, tokens in msgspec.structs.asdict(report.sources).items():
            self._prompt.labels(tenant, source).inc(tokens)
        self._generated.labels(tenant).inc(report.generated)
        self._recomputed.labels(tenant).inc(report.recomputed)
        self._requests.labels(tenant, outcome).inc()
        self._lookups.labels(report.why.kind).inc()
        self._preemptions.inc(report.preemptions)
        for cause, seconds in msgspec.structs.asdict(report.waits).items():
            self._waits.labels(cause).observe(seconds)

    def time(self, first_token: float, total: float) -> None:
        """Seconds a complete request took."""
        self._first.observe(first_token)
        self._total.observe(total)

    def text(self) -> bytes:
        """The page that Prometheus scrapes."""
        return generate_latest(self.registry)


class _Registry(CollectorRegistry):
    """Leaves out the time at which each counter was made: a series more for every series, which
    the library can turn off for the whole process only."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


class _Moments:
    """Reads the numbers of the moment when they are scraped."""

    def __init__(self, moment: Callable[[], Moment | None]) -> None:
        self._moment = moment

    def describe(self) -> Iterable[Metric]:
        """The names, without asking anybody."""
        return _families(None)

    def collect(self) -> Iterable[Metric]:
        return _families(self._moment())


def _families(now: Moment | None) -> Iterable[Metric]:
    """All families; without a moment only what is true then has a value: nothing is ready."""
    ready = 0.0 if now is None else float(now.ready)
    yield GaugeMetricFamily("headwater_ready", "1 while requests are answered.", value=ready)
    for kind, name, text, field in _PLAIN:
        value = None if now is None else float(getattr(now, field))
        yield kind(f"headwater_{name}", text, value=value)
    for kind, name, text, field, labels in _LABELLED:
        family = kind(f"headwater_{name}", text, labels=labels)
        if now is not None:
            for key, value in getattr(now, field).items():
                family.add_metric(list(key) if isinstance(key, tuple) else [key], value)
        yield family
    info = GaugeMetricFamily(
        "headwater_info", "What is served, as labels.", labels=["version", "model", "epoch"]
    )
    if now is not None:
        info.add_metric([now.info[name] for name in ("version", "model", "epoch")], 1)
    yield info


_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily

# kind, name, help, the moment's field
_PLAIN = (
    (_GAUGE, "kv_page_bytes", "Bytes of a page, all layers.", "page_bytes"),
    (_GAUGE, "kv_pinned_pages", "Cached pages that somebody uses or keeps.", "pinned"),
    (_COUNTER, "kv_evicted_pages", "Pages evicted to make room.", "evicted"),
    (_GAUGE, "leases", "Paths of the tree in use by running answers.", "leases"),
    (_GAUGE, "promises", "Prefixes being computed that others can wait for.", "promises"),
    (_GAUGE, "pins", "Prefixes kept on request.", "holds"),
    (_COUNTER, "steps", "Passes through the model.", "steps"),
    (_GAUGE, "requests_unanswered", "Requests without a first token.", "unanswered"),
)

# the same, and the labels of the field's keys
_LABELLED = (
    (_GAUGE, "kv_pages", "Pages of the KV pool, by state.", "pages", ["state"]),
    (_GAUGE, "sequences", "Answers under way, by state.", "sequences", ["state"]),
    (
        _GAUGE,
        "kv_cached_pages",
        "Cached pages by share of the pool; the share without a name is everybody's without a "
        "floor.",
        "shares",
        ["share"],
    ),
    (
        _GAUGE,
        "requests_unfinished",
        "Requests that were let in and have not ended.",
        "unfinished",
        ["tenant"],
    ),
    (
        _COUNTER,
        "requests_refused",
        "Requests that were not let in, by reason: quota, queue or draining.",
        "refused",
        ["tenant", "reason"],
    ),
)
