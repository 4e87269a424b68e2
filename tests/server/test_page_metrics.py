"""The numbers behind the page: what is scraped adds up to what callers were told."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.observe.metrics import Metrics
from headwater.server.moment import moment_of
from headwater.server.tenants import Tenant
from tests.server.live import ALICE, BOB, TENANTS, said, wait_until


def scraped(server):
    """Values by name and labels."""
    page = server.http().get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }


def summed(found, name, *labels):
    return sum(v for (n, *rest), v in found.items() if n == name and set(labels) <= set(rest))


def tokens(found, tenant):
    """(prompt, reused, generated) tokens of a tenant."""
    prompt = summed(found, "headwater_prompt_tokens_total", tenant)
    computed = summed(found, "headwater_prompt_tokens_total", tenant, "computed")
    return prompt, prompt - computed, found["headwater_generated_tokens_total", tenant]


def asked_in_every_shape(server, key):
    """(prompt, cached, drawn) tokens and the number of prompts, as the usages of answers say."""
    told = Counter()
    http, text = server.http(key), "What do you say, and why do you say it? " * 4
    bodies = [
        ("/v1/chat/completions", {"messages": said(text)}),
        ("/v1/chat/completions", {"messages": said(text), "n": 3}),
        ("/v1/chat/completions", {"messages": said(text), "headwater": {"read": False}}),
        ("/v1/completions", {"prompt": [text, text + "More."], "max_tokens": 5}),
        ("/v1/responses", {"input": text}),
        ("/v1/messages", {"messages": said(text), "max_tokens": 9}),
    ]
    for path, body in bodies:
        answer = http.post(path, json={"model": server.service.model} | body)
        assert answer.status_code == 200, answer.text
        told += _told(answer.json()["usage"])
        told["prompts"] += len(body["prompt"]) if path == "/v1/completions" else 1
    return told


def _told(usage):
    """A usage of any shape. Anthropic counts cached tokens apart."""
    cached = usage.get("cache_read_input_tokens")
    if cached is not None:
        prompt = usage["input_tokens"] + cached + usage["cache_creation_input_tokens"]
        return Counter(prompt=prompt, cached=cached, drawn=usage["output_tokens"])
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    drawn = usage.get("completion_tokens", usage.get("output_tokens"))
    return Counter(prompt=prompt, cached=details["cached_tokens"], drawn=drawn)


def test_tokens_by_source_add_up_to_what_usages_say(live):
    server = live(tenants=TENANTS)
    alice, bob = (asked_in_every_shape(server, key) for key in (ALICE, BOB))
    wait_until(lambda: server.is_idle)
    found = scraped(server)
    assert tokens(found, "alice") == (alice["prompt"], alice["cached"], alice["drawn"])
    assert tokens(found, "bob") == (bob["prompt"], bob["cached"], bob["drawn"])
    assert alice == bob, "neither has anything of the other's"
    assert alice["cached"] > 0


def test_requests_add_up_over_outcomes_reasons_waits_and_times(live):
    server = live()
    told = asked_in_every_shape(server, None)
    wait_until(lambda: server.is_idle)
    found = scraped(server)
    assert found["headwater_requests_total", "complete", "default"] == told["prompts"]
    assert summed(found, "headwater_lookups_total") == told["prompts"]
    assert found["headwater_lookups_total", "not_shared"] == 1
    for name in ("time_to_first_token", "request_duration"):
        assert found[f"headwater_{name}_seconds_count",] == told["prompts"]
    for cause in ("queue", "promise", "load"):
        assert found["headwater_wait_seconds_count", cause] == told["prompts"]


def test_pages_add_up_to_the_pool_and_nothing_is_left_over(live):
    server = live()
    asked_in_every_shape(server, None)
    wait_until(lambda: server.is_idle)
    found, stats = scraped(server), server.hw.stats()
    assert summed(found, "headwater_kv_pages") == stats.pages.total
    assert found["headwater_kv_pages", "cached"] == stats.pages.cached > 0
    assert summed(found, "headwater_kv_cached_pages") == stats.pages.cached
    for name in ("leases", "promises", "pins", "requests_unanswered"):
        assert found[f"headwater_{name}",] == 0
    assert found["headwater_requests_unfinished", "default"] == 0
    assert found["headwater_steps_total",] == server.hw.progress.steps


def test_what_was_refused_is_counted_by_tenant_and_reason(live):
    server = live(tenants=(Tenant(name="alice", keys=(ALICE,), max_requests=1),))
    server.runner.delay = 0.2
    first = threading.Thread(
        target=server.http(ALICE).post,
        args=("/v1/chat/completions",),
        kwargs={"json": {"messages": said()}},
    )
    first.start()
    wait_until(lambda: scraped(server)["headwater_requests_unfinished", "alice"] == 1)
    refused = server.http(ALICE).post("/v1/chat/completions", json={"messages": said()})
    assert refused.status_code == 429
    server.runner.delay = 0
    first.join()
    assert scraped(server)["headwater_requests_refused_total", "alice", "quota"] == 1


def test_a_scrape_ends_although_a_step_does_not(live):
    server = live(stall=0.2)
    server.runner.delay = 4
    asking = threading.Thread(
        target=server.http().post,
        args=("/v1/chat/completions",),
        kwargs={"json": {"messages": said(), "max_tokens": 1}},
    )
    asking.start()
    wait_until(lambda: server.http().get("/readyz").status_code == 503)
    found = scraped(server)
    assert server.hw.progress.steps == 0, "the step is still under way"
    assert found["headwater_ready",] == 0
    assert ("headwater_kv_pages", "free") not in found
    server.runner.delay = 0
    asking.join()


def test_a_scrape_of_an_engine_that_has_ended_says_that_it_is_not_ready(live):
    server = live()
    server.hw.close("cancel")
    found = scraped(server)
    assert found["headwater_ready",] == 0
    assert found["headwater_requests_total", "complete", "default"] == 0


def test_metrics_and_moment_name_the_same_server(parrot):
    metrics = Metrics(lambda: moment_of(parrot.service))
    assert metrics.registry.get_sample_value(
        "headwater_info",
        {
            "version": parrot.http().get("/openapi.json").json()["info"]["version"],
            "model": "parrot",
            "epoch": parrot.hw.stats().epoch[:16],
        },
    ) == pytest.approx(1)
