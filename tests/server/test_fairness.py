"""Tenants side by side in time: nobody waits for ever, and no hit shows in another's clock."""

from __future__ import annotations

import threading
import time

import pytest

from headwater.server.tenants import Tenant
from tests.server.live import ALICE, BOB, TENANTS, said, wait_until

CHAT = "/v1/chat/completions"
LONG = "the quick brown fox jumps over the lazy dog " * 12


def _ask(http, message, **named):
    body = {"messages": said(message), "max_tokens": 1} | named
    found = http.post(CHAT, json=body, headers={"X-Headwater-Report": "1"})
    assert found.status_code == 200, found.text
    return found.json()


def _cached(done):
    return done["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_prompt_that_another_tenant_has_cached_takes_as_long_as_any(live):
    server = live(tenants=TENANTS, step_tokens=16, max_running=16)
    server.runner.delay = 0.02

    def cost(key, message):
        before, began = server.hw.progress.steps, time.monotonic()
        _ask(server.http(key), message)
        return server.hw.progress.steps - before, time.monotonic() - began

    first, _ = cost(ALICE, LONG)
    again, _ = cost(ALICE, LONG)
    theirs, seconds = cost(BOB, LONG)
    assert first == theirs >= 5 * again
    assert seconds >= theirs * server.runner.delay


def test_a_cold_request_is_not_passed_over_for_ever_by_a_hot_stream(live):
    """Those that hit are preferred, a bounded number of times."""
    server = live(order="longest-prefix", max_running=2)
    server.runner.delay = 0.002
    _ask(server.http(), LONG)
    stop = threading.Event()
    hot = []

    def ask_hot():
        http = server.http()
        while not stop.is_set():
            hot.append(_cached(_ask(http, LONG)))

    asking = [threading.Thread(target=ask_hot) for _ in range(8)]
    for each in asking:
        each.start()
    try:
        wait_until(lambda: len(hot) > 20)
        before = len(hot)
        assert _cached(_ask(server.http(), "Xenon is cold. " * 20)) < 20
        passed = len(hot) - before
        wait_until(lambda: len(hot) > before + passed + 20)  # the stream goes on
    finally:
        stop.set()
        for each in asking:
            each.join()
    assert passed <= server.hw.recipe.settings.patience + 20
    assert min(hot) > 100


@pytest.mark.parametrize("floor", ["256 KiB", 0], ids=["floor", "none"])
def test_a_flood_of_another_tenant_leaves_what_is_under_a_floor(live, floor):
    server = live(
        tenants=(
            Tenant(name="alice", keys=(ALICE,), kv_floor=floor),
            Tenant(name="bob", keys=(BOB,)),
        ),
        kv_memory="512 pages",
    )
    alice, bob = server.http(ALICE), server.http(BOB)
    _ask(alice, LONG)
    for number in range(20):
        _ask(bob, f"{number} is another number. " * 15)
    again = _ask(alice, LONG)
    if floor:
        assert _cached(again) == again["usage"]["prompt_tokens"] - 1
    else:
        assert _cached(again) == 0


def test_a_flood_of_another_tenant_does_not_keep_one_waiting(live):
    """In steps, since seconds depend on what else the machine does: a new prompt shares the steps
    of those that came before it, and does not wait for them to end."""
    server = live(tenants=TENANTS, step_tokens=64, max_running=64)
    server.runner.delay = 0.005
    alice = server.http(ALICE)
    _ask(alice, LONG)
    stop = threading.Event()

    def flood(number):
        http, at = server.http(BOB), 0
        while not stop.is_set():
            at += 1
            _ask(http, f"{number} {at} is another number. " * 10, max_tokens=20)

    flooding = [threading.Thread(target=flood, args=(number,)) for number in range(6)]
    for each in flooding:
        each.start()
    try:
        wait_until(lambda: server.hw.stats().running >= 4)
        took = []
        for _ in range(10):
            before = server.hw.progress.steps
            assert _cached(_ask(alice, LONG)) > 100
            took.append(server.hw.progress.steps - before)
    finally:
        stop.set()
        for each in flooding:
            each.join()
    # Six prompts of some 60 tokens may be before it.
    assert max(took) <= 25
