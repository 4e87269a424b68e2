"""A dashboard for Grafana, made from the metrics there are.

What belongs together is drawn together, by hand; whatever is left gets a panel of its own, with the
help of its metric. So a new metric shows without anybody having to think of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from prometheus_client.core import Metric

COLUMNS = 24
HEIGHT = 8
_CHOSEN = 'instance=~"$instance"'


class Query(msgspec.Struct, frozen=True):
    """A line, or one for each of its labels' values: in PromQL, and how it is called."""

    expression: str
    legend: str = "__auto"


class Panel(msgspec.Struct, frozen=True):
    """
    text: what it shows, for who hovers over it. unit: Grafana's name of it.
    kind: "timeseries" or "stat". width: in columns of 24. stacked: its lines add up to something.
    """

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False


def dashboard(families: Iterable[Metric]) -> dict[str, Any]:
    """Everything that a registry collects, as Grafana imports it."""
    drawn = {name for _, panels in ROWS for panel in panels for name in names_in(panel)}
    left = [_panel_of(f) for f in families if not drawn.intersection(_samples_of(f))]
    rows = [*ROWS, ("More", left)] if left else ROWS
    return {
        "uid": "headwater",
        "title": "Headwater",
        "description": "What the prefix cache saves, why not more, and what the engine does.",
        "tags": ["llm", "kv-cache"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # one cursor for all panels
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _VARIABLES},
        "panels": _placed(rows),
    }


def names_in(panel: Panel) -> set[str]:
    """The names of samples that a panel asks for."""
    return {n for query in panel.queries for n in re.findall(r"headwater_\w+", query.expression)}


def _samples_of(family: Metric) -> list[str]:
    """The names under which a family's samples are found."""
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
    return [family.name + ending for ending in endings.get(family.type, [""])]


def _panel_of(family: Metric) -> Panel:
    """A panel for a family nobody has drawn."""
    title = family.name.removeprefix("headwater_").replace("_", " ").capitalize()
    unit = _unit_of(family.name)
    match family.type:
        case "counter":
            query = Query(f"sum without (instance, job) ({_rate(f'{family.name}_total')})")
            return Panel(f"{title} per second", family.documentation, unit, (query,))
        case "histogram":
            return Panel(title, family.documentation, unit, _quantiles(family.name))
        case _:
            query = Query(f"sum without (instance, job) ({family.name}{{{_CHOSEN}}})")
            return Panel(title, family.documentation, unit, (query,))


def _unit_of(name: str) -> str:
    if name.endswith("_seconds"):
        return "s"
    return "bytes" if name.endswith("_bytes") else "short"


def _rate(name: str, only: str = "") -> str:
    labels = ",".join(filter(None, [_CHOSEN, only]))
    return f"rate({name}{{{labels}}}[$__rate_interval])"


def _rates(name: str, by: str = "", only: str = "") -> str:
    return _sum(_rate(name, only), by)


def _now(name: str, by: str = "") -> str:
    return _sum(f"{name}{{{_CHOSEN}}}", by)


def _sum(what: str, by: str) -> str:
    return f"sum by ({by}) ({what})" if by else f"sum({what})"


def _memory() -> str:
    """Bytes of KV by state."""
    pages, size = (f"headwater_kv_{each}{{{_CHOSEN}}}" for each in ("pages", "page_bytes"))
    return _sum(f"{pages} * on (instance, job) group_left () {size}", "state")


def _reused(by: str = "") -> str:
    """The share of prompt tokens that were not computed."""
    tokens = "headwater_prompt_tokens_total"
    computed = 'source!="computed"'
    return f"{_rates(tokens, by, computed)} / {_rates(tokens, by)}"


def _quantiles(name: str) -> tuple[Query, ...]:
    return tuple(Query(_quantile(q, name), f"{100 * q:.0f} %") for q in (0.5, 0.95, 0.99))


def _quantile(share: float, name: str, by: str = "") -> str:
    """Most seconds that this share of a histogram's times took."""
    buckets = _rates(f"{name}_bucket", f"le, {by}" if by else "le")
    return f"histogram_quantile({share}, {buckets})"


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Reuse",
        (
            Panel(
                "Reused",
                "The share of prompt tokens whose KV was not computed.",
                "percentunit",
                (Query(_reused()),),
                kind="stat",
                width=4,
            ),
            Panel(
                "Prompt tokens per second, by source",
                "Where the KV of prompts came from; computed is what was not reused.",
                "short",
                (Query(_rates("headwater_prompt_tokens_total", "source")),),
                width=12,
                stacked=True,
            ),
            Panel(
                "Reused, by tenant",
                "The share of each tenant's prompt tokens whose KV was not computed.",
                "percentunit",
                (Query(_reused("tenant")),),
            ),
            Panel(
                "Why reuse ended, requests per second",
                "all_reused is as good as it gets; evicted asks for more KV memory, diverged for "
                "prompts whose changing parts come last.",
                "reqps",
                (Query(_rates("headwater_lookups_total", "reason")),),
                width=12,
                stacked=True,
            ),
            Panel(
                "Tokens per second",
                "Of answers; and computed again after preemptions, which is lost work.",
                "short",
                (
                    Query(_rates("headwater_generated_tokens_total", "tenant"), "{{tenant}}"),
                    Query(_rates("headwater_recomputed_tokens_total"), "computed again"),
                ),
                width=12,
            ),
        ),
    ),
    (
        "Requests",
        (
            Panel(
                "Time to first token",
                "From a request's arrival to its first token, of complete requests.",
                "s",
                _quantiles("headwater_time_to_first_token_seconds"),
            ),
            Panel(
                "Duration",
                "From a request's arrival to its last token, of complete requests.",
                "s",
                _quantiles("headwater_request_duration_seconds"),
            ),
            Panel(
                "Waiting before the prompt is computed, 95 %",
                "For room (queue), for KV that another request computes (promise), for KV that is "
                "loaded (load).",
                "s",
                (Query(_quantile(0.95, "headwater_wait_seconds", "cause")),),
            ),
            Panel(
                "Ended per second",
                "By tenant and outcome.",
                "reqps",
                (Query(_rates("headwater_requests_total", "tenant, outcome")),),
            ),
            Panel(
                "Not let in per second",
                "By tenant and reason: its quota, the queue, or a server that is ending.",
                "reqps",
                (Query(_rates("headwater_requests_refused_total", "tenant, reason")),),
            ),
            Panel(
                "Unfinished",
                "By tenant; and those of them that have no first token yet.",
                "short",
                (
                    Query(_now("headwater_requests_unfinished", "tenant"), "{{tenant}}"),
                    Query(_now("headwater_requests_unanswered"), "without a first token"),
                ),
            ),
        ),
    ),
    (
        "KV memory",
        (
            Panel(
                "KV memory, by state",
                "It adds up to the pool. Private is what belongs to answers under way.",
                "bytes",
                (Query(_memory()),),
                width=12,
                stacked=True,
            ),
            Panel(
                "Evicted pages per second",
                "KV that was forgotten to make room.",
                "short",
                (Query(_rates("headwater_kv_evicted_pages_total", "instance")),),
                width=12,
            ),
            Panel(
                "Cached pages, by share",
                "Domains with a floor, and everybody else under no name; and those in use or kept.",
                "short",
                (
                    Query(_now("headwater_kv_cached_pages", "share"), "share {{share}}"),
                    Query(_now("headwater_kv_pinned_pages"), "in use or kept"),
                ),
                width=12,
            ),
            Panel(
                "Leases, promises, pins",
                "Paths of the tree in use; prefixes being computed that others can wait for; "
                "prefixes kept on request.",
                "short",
                (
                    Query(_now("headwater_leases"), "leases"),
                    Query(_now("headwater_promises"), "promises"),
                    Query(_now("headwater_pins"), "pins"),
                ),
                width=12,
            ),
        ),
    ),
    (
        "Engine",
        (
            Panel(
                "Ready",
                "1 while requests are answered.",
                "short",
                (Query(_now("headwater_ready", "instance")),),
                kind="stat",
                width=4,
            ),
            Panel(
                "Served",
                "Version, model, and epoch of the weights.",
                "short",
                (
                    Query(
                        _now("headwater_info", "version, model, epoch"),
                        "{{model}} {{epoch}}, version {{version}}",
                    ),
                ),
                kind="stat",
                width=4,
            ),
            Panel(
                "Answers under way, by state",
                "A request has one for each of its choices.",
                "short",
                (Query(_now("headwater_sequences", "state")),),
                stacked=True,
            ),
            Panel(
                "Steps and preemptions per second",
                "Passes through the model; answers that gave way to others and began again.",
                "ops",
                (
                    Query(_rates("headwater_steps_total"), "steps"),
                    Query(_rates("headwater_preemptions_total"), "preemptions"),
                ),
            ),
        ),
    ),
)

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

_VARIABLES = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
    {
        "name": "instance",
        "label": "Server",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(headwater_ready, instance)",
        "refresh": 2,  # when the time range changes
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    },
]


def _placed(rows: Sequence[tuple[str, Sequence[Panel]]]) -> list[dict[str, Any]]:
    """Panels from left to right, in lines below the title of their row."""
    placed: list[dict[str, Any]] = []

    def place(what: dict[str, Any], x: int, y: int, width: int, height: int) -> None:
        position = {"x": x, "y": y, "w": width, "h": height}
        placed.append({"id": len(placed) + 1, **what, "gridPos": position})

    y = 0
    for title, panels in rows:
        place({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, y, COLUMNS, 1)
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            place(_drawn(panel), x, y, panel.width, HEIGHT)
            x += panel.width
        y += HEIGHT
    return placed


def _drawn(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.unit == "percentunit":
        defaults["max"] = 1
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 40 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "textMode": "value_and_name",
        "colorMode": "value",
    },
}
