"""What Prometheus scrapes: named as its guidelines have it, and counted once."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.observe.explain import Report, Sources, Waits, Why
from headwater.observe.metrics import Metrics, Moment

NOW = Moment(
    pages={"free": 5, "cached": 3, "private": 2, "in_io": 0},
    page_bytes=4096,
    pinned=1,
    evicted=7,
    sequences={"running": 1, "loading": 0, "waiting": 2},
    leases=1,
    promises=1,
    holds=0,
    steps=12,
    shares={"": 3},
    ready=True,
    info={"version": "1", "model": 'a "quoted" name', "epoch": "e"},
    unfinished={"acme": 3},
    unanswered=2,
    refused={("acme", "quota"): 4},
)


def report(kind="never_seen", **sources):
    return Report(
        sources=Sources(**sources),
        generated=3,
        recomputed=2,
        preemptions=1,
        waits=Waits(queue=0.5),
        load_failure=None,
        why=Why(kind, 0, "", "", ""),
    )


def used():
    """Metrics of a server that has served."""
    metrics = Metrics(lambda: NOW, ["acme"])
    metrics.count("acme", "complete", report(device=40, computed=60))
    metrics.count("umbrella", "cut off", report("diverged", computed=10))
    metrics.time(0.2, 1.5)
    return metrics


def families(metrics):
    return list(text_string_to_metric_families(metrics.text().decode()))


def samples(metrics):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families(metrics)
        for sample in family.samples
    }


# What `promtool check metrics` holds a page to, and what its rules come from:
# https://prometheus.io/docs/practices/naming/


def problems(family):
    """What a linter would say of a family, in the words of a person."""
    name, labels = family.name, {label for sample in family.samples for label in sample.labels}
    words = name.split("_")
    rules = (
        (re.fullmatch(r"headwater(_[a-z]+[a-z0-9]*)+", name), "is not in snake_case"),
        (family.documentation.endswith("."), "has no sentence of help"),
        (family.type != "unknown", "has no type"),
        ("total" not in words, "says twice that it is a counter, or is none"),
        (not {"count", "sum", "bucket", "created"} & set(words), "has a histogram's ending"),
        (not {"counter", "gauge", "histogram", "metric"} & set(words), "names its type"),
        (not {"ms", "milliseconds", "minutes", "kb", "mb", "mib", "percent"} & set(words), "unit"),
        (not labels & set(words), "has the name of a label"),
        (not labels & {"le", "quantile", "job", "instance"} or family.type == "histogram", "label"),
        (family.type != "histogram" or words[-1] == "seconds", "is a time without a unit"),
    )
    return [f"{name} {what}" for holds, what in rules if not holds]


@pytest.mark.parametrize("family", families(used()), ids=lambda family: family.name)
def test_a_linter_has_nothing_to_say_of(family):
    assert problems(family) == []


def test_the_linter_sees_what_is_wrong():
    page = "# TYPE headwater_Wait_ms gauge\nheadwater_Wait_ms 1\n# TYPE x_total gauge\nx_total 1\n"
    first, second = text_string_to_metric_families(page)
    assert len(problems(first)) == len(problems(second)) == 3


def test_counters_end_in_total_and_nothing_else_does():
    for family in families(used()):
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")


def test_when_a_counter_was_made_is_no_metric():
    assert "_created" not in used().text().decode()


def test_a_request_counts_its_prompt_once_by_source():
    found = samples(used())
    assert found["headwater_prompt_tokens_total", "acme", "device"] == 40
    assert found["headwater_prompt_tokens_total", "acme", "computed"] == 60
    assert found["headwater_generated_tokens_total", "acme"] == 3
    assert found["headwater_recomputed_tokens_total", "acme"] == 2
    assert found["headwater_requests_total", "acme", "complete"] == 1
    assert found["headwater_requests_total", "cut off", "umbrella"] == 1
    assert found["headwater_preemptions_total",] == 2
    assert found["headwater_lookups_total", "diverged"] == 1
    assert found["headwater_wait_seconds_sum", "queue"] == 1.0


def test_the_moment_is_read_when_it_is_scraped():
    now = [NOW]
    metrics = Metrics(lambda: now[0])
    assert samples(metrics)["headwater_kv_pages", "cached"] == 3
    assert samples(metrics)["headwater_requests_refused_total", "acme", "quota"] == 4
    assert samples(metrics)["headwater_requests_unfinished", "acme"] == 3
    now[0] = None
    assert ("headwater_kv_pages", "cached") not in samples(metrics)


def test_nothing_is_ready_when_nobody_answers():
    assert samples(used())["headwater_ready",] == 1
    assert samples(Metrics(lambda: None))["headwater_ready",] == 0


def test_what_will_be_counted_stands_at_zero_from_the_beginning():
    found = samples(Metrics(lambda: None, ["acme"]))
    assert found["headwater_prompt_tokens_total", "acme", "device"] == 0
    assert found["headwater_requests_total", "acme", "complete"] == 0
    assert found["headwater_lookups_total", "evicted"] == 0
    assert found["headwater_wait_seconds_count", "promise"] == 0


def test_every_family_is_announced_before_anything_happened():
    fresh = {family.name for family in Metrics(lambda: None).registry.collect()}
    assert fresh == {family.name for family in used().registry.collect()}


def test_labels_may_hold_any_text():
    [info] = [each for each in families(used()) if each.name == "headwater_info"]
    assert info.samples[0].labels["model"] == NOW.info["model"]


def test_two_servers_of_a_process_count_apart():
    one, other = used(), Metrics(lambda: None)
    assert samples(one)["headwater_preemptions_total",] == 2
    assert samples(other)["headwater_preemptions_total",] == 0
