"""Metrics in Prometheus' format: names, units and help as its guidelines have them.

Tokens of prompts are counted once, by where their KV came from; what is computed again after a
preemption is a counter of its own. Numbers of the moment are read when they are scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headwater.observe.explain import Report

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's numbers at the time of a scrape.

    pages: by state (free, cached, private, in_io). sequences: by state (running, loading, waiting).
    pinned, evicted: pages. steps: computed so far. shares: cached pages by share of the pool.
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
    refused: dict[tuple[str, str], int]


class Metrics:
    """All metrics of a server. `moment` is asked at every scrape; None when nobody can answer."""

    def __init__(self, moment: Callable[[], Moment | None]) -> None:
        self.registry = CollectorRegistry()
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
        self._misses = counter("misses", "Why reuse of a prompt ended where it did.", ["reason"])
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

    def count(self, tenant: str, outcome: str, report: Report) -> None:
        """Count a request that has ended."""
        for source, tokens in msgspec.structs.asdict(report.sources).items():
            if tokens:
                self._prompt.labels(tenant, source).inc(tokens)
        self._generated.labels(tenant).inc(report.generated)
        if report.recomputed:
            self._recomputed.labels(tenant).inc(report.recomputed)
        self._requests.labels(tenant, outcome).inc()
        self._misses.labels(report.why.kind).inc()
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
    pages = GaugeMetricFamily(
        "headwater_kv_pages", "Pages of the KV pool, by state.", labels=["state"]
    )
    sequences = GaugeMetricFamily(
        "headwater_sequences", "Answers under way, by state.", labels=["state"]
    )
    shares = GaugeMetricFamily(
        "headwater_share_cached_pages",
        "Cached pages by share of the pool; the share without a name is everybody's without a "
        "floor.",
        labels=["share"],
    )
    info = GaugeMetricFamily(
        "headwater_info", "What is served, as labels.", labels=["version", "model", "epoch"]
    )
    refused = CounterMetricFamily(
        "headwater_requests_refused",
        "Requests that were not let in, by reason: quota, queue or draining.",
        labels=["tenant", "reason"],
    )
    if now is not None:
        for state, count in now.pages.items():
            pages.add_metric([state], count)
        for state, count in now.sequences.items():
            sequences.add_metric([state], count)
        for share, count in now.shares.items():
            shares.add_metric([share], count)
        info.add_metric([now.info[name] for name in ("version", "model", "epoch")], 1)
        for (tenant, reason), count in now.refused.items():
            refused.add_metric([tenant, reason], count)
    yield from (pages, sequences, shares, info, refused)
    for kind, name, text, value in _plain(now):
        yield kind(name, text, value=value)


def _plain(now: Moment | None) -> Iterable[tuple[type, str, str, float | None]]:
    """Metrics without labels."""
    gauge, counter = GaugeMetricFamily, CounterMetricFamily
    rows = (
        (gauge, "kv_page_bytes", "Bytes of a page, all layers.", "page_bytes"),
        (gauge, "kv_pinned_pages", "Cached pages that somebody uses or keeps.", "pinned"),
        (counter, "evicted_pages", "Pages evicted to make room.", "evicted"),
        (gauge, "leases", "Paths of the tree in use by running answers.", "leases"),
        (gauge, "promises", "Prefixes being computed that others can wait for.", "promises"),
        (gauge, "pins", "Prefixes kept on request.", "holds"),
        (counter, "steps", "Passes through the model.", "steps"),
        (gauge, "ready", "1 while requests are answered.", "ready"),
    )
    for kind, name, text, field in rows:
        value = None if now is None else float(getattr(now, field))
        yield kind, f"headwater_{name}", text, value
