"""Cache on and cache off say the same: concurrent, turn after turn, while evicting."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
import torch

from headwater import LoadedModel
from headwater.errors import ModelNotFound
from headwater.testing.oracle import Verdict, ask, compare
from tests.engine.oracle import converse, plant_wrong_pages

DATA = Path(__file__).parent.parent / "data" / "agent_sessions.jsonl"


@pytest.fixture(scope="module")
def default_model():
    """On all cores, which a tiny model would only slow down. Fetched once; without a network and
    without an earlier fetch there is nothing to test, except in CI, where that is a failure."""
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    try:
        loaded = LoadedModel.load(None, dtype="float32", device="cpu")
    except ModelNotFound as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"needs the default model, which could not be fetched: {error}")
    yield loaded
    torch.set_num_threads(threads)


def words(draw, count):
    return " ".join(
        draw.choice(["fox", "dog", "the", "says", "hello", "jumps"]) for _ in range(count)
    )


def test_conversations_with_a_tiny_model(engine):
    draw = random.Random(1)
    shared = words(draw, 12)
    conversations = [
        [f"{shared} {words(draw, 4)}", words(draw, 3), words(draw, 3), words(draw, 2)]
        for _ in range(16)
    ]
    pages = {"kv_memory": "120 pages", "max_running": 8, "step_tokens": 64}
    cached, plain = engine(**pages), engine(cache="none", **pages)
    verdict, reused = converse(cached, plain, conversations, tokens=8)
    assert verdict.holds, verdict
    assert verdict.ties == 0
    assert verdict.tokens == 16 * 4 * 8
    assert reused > 1000
    assert cached.stats().pages.evicted > 100


def test_a_wrong_page_is_caught_with_a_tiny_model(engine, monkeypatch):
    prompts = [list(range(2 + at, 120 + at)) for at in range(3)]
    cached, plain = engine(page=16, kv_memory="40 pages"), engine(cache="none")
    ask(cached, prompts, 1)
    plant_wrong_pages(cached, monkeypatch)
    verdict = Verdict()
    for at, prompt in enumerate(prompts):
        [ours], [other] = ask(cached, [prompt], 8), ask(plain, [prompt], 8)
        compare(verdict, at, ours.choices[0], other.choices[0])
    assert not verdict.holds


@pytest.mark.model
@pytest.mark.slow
def test_agent_sessions_with_the_default_model(engine, default_model):
    """Ten sessions of 1,000 tokens and more, in a pool that holds about half of them."""
    sessions = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    conversations = [[each["first"], each["reply"] + each["follow"]] for each in sessions]
    pages = {"model": default_model, "kv_memory": "480 pages", "page": 16}
    cached, plain = engine(**pages), engine(cache="none", **pages)
    verdict, reused = converse(cached, plain, conversations, tokens=10)
    assert verdict.holds, verdict
    assert verdict.tokens > 0.9 * 10 * 2 * 10
    assert plain.stats().tokens.prompt > 10 * 2 * 1000
    assert reused > 3000
    assert cached.stats().pages.evicted > 100


@pytest.mark.model
def test_a_wrong_page_is_caught_with_the_default_model(engine, default_model, monkeypatch):
    [prompt] = [json.loads(DATA.read_text("utf-8").splitlines()[0])["first"][:1500]]
    pages = {"model": default_model, "kv_memory": "64 pages", "page": 16}
    cached, plain = engine(**pages), engine(cache="none", **pages)
    before, right = Verdict(), ask(plain, [prompt], 6)
    ask(cached, [prompt], 1)
    compare(before, 0, ask(cached, [prompt], 6)[0].choices[0], right[0].choices[0])
    assert before.holds, before
    plant_wrong_pages(cached, monkeypatch)
    after = Verdict()
    compare(after, 0, ask(cached, [prompt], 6)[0].choices[0], right[0].choices[0])
    assert not after.holds
