"""`/v1/cache/...`: prewarm, pin, flush, explain, and what they say of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.server.tenants import Tenant
from tests.server.live import ALICE, BOB, said, wait_until
from tests.server.test_openai_chat import TOOL

TEXT = "the quick brown fox jumps over the lazy dog and says hello to the world"


@pytest.fixture
def http(keyed):
    return keyed.http(ALICE)


def _post(http, what, **body):
    found = http.post(f"/v1/cache/{what}", json=body)
    assert found.status_code == 200, found.text
    return found.json()


def _chat(http, message=TEXT, **named):
    body = {"messages": said(message), "max_tokens": 1} | named
    return http.post("/v1/chat/completions", json=body).json()["usage"]


def _cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


# Prewarm


@pytest.mark.parametrize(
    "named",
    [{}, {"tools": [TOOL]}, {"chat_template_kwargs": {"enable_thinking": False}}],
)
def test_what_was_prewarmed_is_hit(http, named):
    warmed = _post(http, "prewarm", messages=said(TEXT), **named)
    assert warmed["computed_tokens"] == warmed["prompt_tokens"]
    usage = _chat(http, **named)
    assert usage["prompt_tokens"] == warmed["prompt_tokens"]
    assert _cached(usage) == usage["prompt_tokens"] - 1
    again = _post(http, "prewarm", messages=said(TEXT), **named)
    assert again["cached_tokens"] == again["prompt_tokens"] - 1


def test_a_text_and_tokens_can_be_prewarmed(keyed, http):
    ids = keyed.hw.loaded.tokenizer.encode(TEXT)
    assert _post(http, "prewarm", prompt=TEXT)["computed_tokens"] == len(ids)
    assert _post(http, "prewarm", prompt=ids)["cached_tokens"] == len(ids) - 1
    assert _post(http, "prewarm", prompt=ids, salt="x")["cached_tokens"] == 0


# Explain


def test_an_explanation_is_what_then_happens(http):
    _chat(http, TEXT)
    for message in (TEXT, TEXT[:40], TEXT[:40] + "?", "Something else"):
        foretold = _post(http, "explain", messages=said(message))
        usage = _chat(http, message)
        assert foretold["prompt_tokens"] == usage["prompt_tokens"]
        assert min(foretold["cached_tokens"], usage["prompt_tokens"] - 1) == _cached(usage)


def test_an_explanation_changes_nothing(keyed, http):
    _chat(http, TEXT)
    wait_until(lambda: keyed.is_idle)
    tree, stats = keyed.hw.cache.tree(), keyed.hw.stats()
    for message in (TEXT, TEXT[:40] + "?", "Something else"):
        _post(http, "explain", messages=said(message))
    after = keyed.hw.cache.tree()
    assert [_without_age(each) for each in after] == [_without_age(each) for each in tree]
    assert all(new.idle >= old.idle for new, old in zip(after, tree, strict=True))
    assert keyed.hw.stats() == stats


def _without_age(node):
    return [getattr(node, name) for name in node.__struct_fields__ if name != "idle"]


# Pins


def test_a_receipt_says_what_is_kept(keyed, http):
    receipt = _post(http, "pin", messages=said(TEXT), ttl=100)
    assert receipt["pinned_tokens"] == receipt["prompt_tokens"] == _chat(http)["prompt_tokens"]
    assert receipt["bytes"] % keyed.hw.page_bytes == 0
    assert receipt["bytes"] >= receipt["pinned_tokens"] * keyed.hw.page_bytes // 4
    assert 0 < receipt["expires_in"] <= 100
    [kept] = http.get("/v1/cache/pin").json()["pins"]
    assert kept["id"] == receipt["id"]
    assert http.delete(f"/v1/cache/pin/{receipt['id']}").json()["deleted"]
    assert http.get("/v1/cache/pin").json() == {"pins": []}


def test_a_pin_outlasts_a_flood_and_others_do_not(live):
    server = live(kv_memory="128 pages")
    http = server.http()
    pinned = _post(http, "pin", prompt=TEXT * 2, ttl=300)
    _post(http, "prewarm", prompt="world " + TEXT)
    for number in range(30):
        _post(http, "prewarm", prompt=f"{number} " + TEXT)
    found = _post(http, "explain", prompt=TEXT * 2)
    assert found["cached_tokens"] == pinned["pinned_tokens"] - 1  # the last token runs again
    assert _post(http, "explain", prompt="world " + TEXT)["cached_tokens"] == 0


def test_a_pin_ends_by_itself(http):
    _post(http, "pin", messages=said(TEXT), ttl=0.2)
    wait_until(lambda: http.get("/v1/cache/pin").json() == {"pins": []})


def test_a_budget_keeps_a_part_or_nothing_and_says_so(keyed, http):
    page = keyed.hw.page_bytes
    part = _post(http, "pin", messages=said(TEXT), budget=3 * page)
    assert part["bytes"] == 3 * page
    assert part["pinned_tokens"] == 12 < part["prompt_tokens"]
    nothing = _post(http, "pin", messages=said("Other"), budget=3 * page)
    assert (nothing["pinned_tokens"], nothing["bytes"], nothing["expires_in"]) == (0, 0, 0)
    assert [each["id"] for each in http.get("/v1/cache/pin").json()["pins"]] == [part["id"]]


def test_a_tenants_own_budget_is_the_most(live):
    server = live(
        tenants=(
            Tenant(name="alice", keys=(ALICE,), pin_memory=4096),
            Tenant(name="b", keys=(BOB,)),
        )
    )
    most = 4096 // server.hw.page_bytes * server.hw.page_bytes
    receipt = _post(server.http(ALICE), "pin", prompt=TEXT, budget="1GiB")
    assert receipt["bytes"] == most
    assert _post(server.http(BOB), "pin", prompt=TEXT)["bytes"] > most


# Flush


def test_a_flush_counts_what_is_gone(http):
    one, other = (_post(http, "prewarm", prompt=text) for text in (TEXT, TEXT[:30] + " world!"))
    own = other["prompt_tokens"] - other["cached_tokens"]
    flushed = _post(http, "flush", prompt=TEXT[:30] + " world!")
    assert flushed["in_use_tokens"] == 0
    # A branch in mid-page has copied up to a page less one of what it shares.
    assert own <= flushed["flushed_tokens"] < own + 4
    assert _post(http, "explain", prompt=TEXT)["cached_tokens"] == one["prompt_tokens"] - 1
    assert _post(http, "flush") == {"flushed_tokens": one["prompt_tokens"], "in_use_tokens": 0}
    assert _post(http, "flush") == {"flushed_tokens": 0, "in_use_tokens": 0}
    assert _post(http, "explain", prompt=TEXT)["cached_tokens"] == 0


def test_a_flush_may_be_of_one_salt(http):
    for salt in ("", "x"):
        _post(http, "prewarm", prompt=TEXT, salt=salt)
    assert _post(http, "flush", salt="x")["flushed_tokens"] > 0
    assert _post(http, "explain", prompt=TEXT, salt="x")["cached_tokens"] == 0
    assert _post(http, "explain", prompt=TEXT)["cached_tokens"] > 0


def test_a_flush_leaves_what_is_in_use_and_says_so(live):
    server = live()
    server.runner.delay = 0.02
    body = {"messages": said(TEXT), "max_tokens": 1000, "ignore_eos": True, "stream": True}
    with server.http().stream("POST", "/v1/chat/completions", json=body) as streamed:
        pieces = streamed.iter_bytes()  # dropped, it would end the request
        next(pieces)
        assert _post(server.http(), "flush")["in_use_tokens"] > 0
    wait_until(lambda: server.is_idle)
    _post(server.http(), "flush")
    assert server.hw.stats().pages.cached == 0


# What cannot be


@pytest.mark.parametrize("what", ["prewarm", "pin", "explain"])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"prompt": ""},
        {"prompt": "x", "messages": said()},
        {"prompt": [10**6]},
        {"prompt": "x" * 100_000},
        {"messages": [{"role": "user"}, 5]},
        {"prompt": "x", "more": 1},
        {"prompt": "x", "salt": "x" * 300},
    ],
)
def test_a_prompt_that_cannot_be_is_refused(http, what, body):
    found = http.post(f"/v1/cache/{what}", json=body)
    assert found.status_code == 400, found.text
    assert found.json()["error"]["message"].endswith(".")


@pytest.mark.parametrize(
    ("named", "param"),
    [
        ({"ttl": 0}, "ttl"),
        ({"ttl": 10**10}, "ttl"),
        ({"budget": "much"}, "budget"),
        ({"budget": -1}, "budget"),
    ],
)
def test_a_pin_that_cannot_be_is_refused(http, named, param):
    found = http.post("/v1/cache/pin", json={"prompt": "x"} | named)
    assert found.status_code == 400
    assert found.json()["error"]["param"] == param


def test_prompts_become_tokens_while_many_ask_about_the_cache(live):
    """Who asks waits for the end of a step; who needs no step does not wait for who asks."""
    server = live()
    server.runner.delay = 0.4
    http = server.http()
    with ThreadPoolExecutor(40) as pool:
        pool.submit(_chat, http, max_tokens=5)
        wait_until(lambda: server.hw.stats().running == 1)
        asking = [pool.submit(_post, http, "explain", prompt=TEXT) for _ in range(30)]
        wait_until(lambda: server.service.desk.waiting >= 20)
        before = server.hw.progress.steps
        body = {"model": "parrot", "messages": said()}
        assert http.post("/v1/messages/count_tokens", json=body).status_code == 200
        assert server.hw.progress.steps - before <= 1
        server.runner.delay = 0
        for each in asking:
            each.result()
