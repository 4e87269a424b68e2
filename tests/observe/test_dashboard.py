"""Grafana's dashboard asks for every metric there is, and for no other."""

from __future__ import annotations

import json
import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headwater.observe.dashboard import dashboard
from headwater.observe.metrics import Metrics
from tools import dashboard as tool

ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def exported(registry):
    """Names of samples by the family they belong to."""
    return {
        family.name: {family.name + ending for ending in ENDINGS.get(family.type, ("",))}
        for family in registry.collect()
    }


def expressions(drawn):
    return [t["expr"] for panel in drawn["panels"] for t in panel.get("targets", ())]


def asked(drawn):
    return set(re.findall(r"headwater_\w+", " ".join(expressions(drawn))))


@pytest.fixture
def registry():
    return Metrics(lambda: None).registry


@pytest.fixture
def drawn(registry):
    return dashboard(registry.collect())


def test_every_metric_is_drawn(registry, drawn):
    unseen = [name for name, names in exported(registry).items() if not names & asked(drawn)]
    assert unseen == []


def test_nothing_is_drawn_that_no_server_exports(registry, drawn):
    assert asked(drawn) <= set().union(*exported(registry).values())


def test_a_metric_that_nobody_has_drawn_gets_a_panel_by_its_kind():
    registry = CollectorRegistry()
    Counter("headwater_new", "Some.", registry=registry)
    Gauge("headwater_new_bytes", "Size.", registry=registry)
    Histogram("headwater_new_seconds", "Time.", registry=registry)
    drawn = dashboard(registry.collect())
    panels = {panel["title"]: panel for panel in drawn["panels"]}
    assert panels["New per second"]["targets"][0]["expr"].startswith(
        "sum without (instance, job) (rate(headwater_new_total{"
    )
    assert panels["New bytes"]["fieldConfig"]["defaults"]["unit"] == "bytes"
    assert panels["New bytes"]["description"] == "Size."
    assert [t["legendFormat"] for t in panels["New seconds"]["targets"]] == ["50 %", "95 %", "99 %"]


def test_counters_are_drawn_as_rates_and_histograms_as_quantiles(drawn):
    for expression in expressions(drawn):
        for name in re.findall(r"headwater_\w+", expression):
            inside = f"rate({name}{{" in expression
            assert inside == name.endswith(("_total", "_bucket")), expression
            assert ("histogram_quantile(" in expression) == name.endswith("_bucket")


def test_brackets_close_and_every_query_is_of_the_servers_that_were_chosen(drawn):
    for expression in expressions(drawn):
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing)
        named = len(re.findall(r"headwater_\w+", expression))
        assert expression.count('{instance=~"$instance"') == named


def test_panels_lie_beside_each_other(drawn):
    taken = set()
    for panel in drawn["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        taken |= cells
    ids = [panel["id"] for panel in drawn["panels"]]
    assert len(ids) == len(set(ids))


def test_every_panel_says_what_it_shows(drawn):
    for panel in drawn["panels"]:
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"].endswith(".")
            assert panel["targets"]


def test_the_shipped_file_is_the_one_that_is_made_now():
    shipped = tool.FILE.read_text("utf-8")
    assert shipped == tool.text(), "run python tools/dashboard.py"
    assert json.loads(shipped)["title"] == "Headwater"
