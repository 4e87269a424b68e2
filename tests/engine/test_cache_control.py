"""`hw.cache` on a real (tiny) model, prompts that keep away from the cache, and scored prompts."""

from __future__ import annotations

import math
import time

import pytest
import torch

from headwater import BadRequest, BadSetting
from headwater.cache.tokens import pack

PROMPT = list(range(2, 60))
ASKED = {"max_tokens": 2, "ignore_eos": True, "temperature": 0.0}
CHAT = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "clock", "parameters": {}}}


def cached(hw, prompt=PROMPT, **whose):
    return hw.generate(prompt, **(ASKED | whose)).usage.cached_tokens


def flood(hw):
    for number in range(20):
        hw.generate([100 + number] * 40, **ASKED)


def test_explain_says_what_a_request_would_find_and_changes_nothing(hw):
    assert hw.cache.explain(pack(PROMPT)).why.kind == "never_seen"
    hw.generate(PROMPT, **ASKED)
    before = hw.stats()
    for _ in range(3):
        found = hw.cache.explain(pack(PROMPT))
        assert (found.prompt_tokens, found.cached_tokens) == (58, 57)
    assert hw.stats() == before
    assert hw.cache.explain(pack(PROMPT), domain="other").cached_tokens == 0
    other = hw.cache.explain(pack([*PROMPT[:20], 200, 201]))
    assert (other.why.kind, other.why.at, other.cached_tokens) == ("diverged", 20, 20)


def test_a_pin_keeps_a_prompt_and_its_receipt_says_how_much(hw):
    hw.generate(PROMPT, **ASKED)
    receipt = hw.cache.pin(pack(PROMPT), 60, None)
    assert (receipt.prompt_tokens, receipt.pinned_tokens) == (58, 58)
    assert receipt.bytes == 15 * hw.page_bytes
    assert [each.id for each in hw.cache.pins()] == [receipt.id]
    flood(hw)
    assert cached(hw) == 57
    assert hw.cache.unpin(receipt.id)
    assert not hw.cache.unpin(receipt.id)
    flood(hw)
    assert cached(hw) == 0


def test_a_pin_ends_by_itself_while_nobody_asks(hw):
    hw.generate(PROMPT, **ASKED)
    hw.cache.pin(pack(PROMPT), 0.2, None)
    assert hw.stats().holds == 1
    time.sleep(0.5)
    assert hw.stats().holds == 0


def test_pins_are_their_domain_s_own(hw):
    hw.generate(PROMPT, domain="a", **ASKED)
    receipt = hw.cache.pin(pack(PROMPT), 60, None, "a")
    assert hw.cache.pins("b") == []
    assert not hw.cache.unpin(receipt.id, "b")
    assert hw.cache.pin(pack(PROMPT), 60, None, "b").pinned_tokens == 0


def test_a_budget_bounds_what_is_pinned(hw):
    hw.generate(PROMPT, **ASKED)
    receipt = hw.cache.pin(pack(PROMPT), 60, 3 * hw.page_bytes)
    assert (receipt.pinned_tokens, receipt.bytes) == (12, 3 * hw.page_bytes)
    assert hw.cache.pin(pack(PROMPT), 60, 0).pinned_tokens == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_pin_for_no_time_is_refused(hw, seconds):
    with pytest.raises(BadRequest, match="seconds"):
        hw.cache.pin(pack(PROMPT), seconds, None)


def test_flush_tells_the_truth(hw):
    hw.generate(PROMPT, **ASKED)
    done = hw.cache.flush(pack(PROMPT))
    assert done.flushed_tokens >= len(PROMPT)
    assert done.in_use_tokens == 0
    assert cached(hw) == 0
    assert hw.cache.flush(b"", "nobody").flushed_tokens == 0


def test_the_tree_shows_who_uses_what(hw):
    for domain in ("a", "b"):
        for _ in range(2):
            hw.generate(PROMPT, domain=domain, **ASKED)
    nodes = hw.cache.tree()
    assert {node.domain for node in nodes} == {"a", "b"}
    assert nodes[0].head[:3] == (2, 3, 4)
    assert all(node.parent is None or node.parent in {n.id for n in nodes} for node in nodes)
    assert len(hw.cache.tree(limit=1)) == 1


def test_a_prompt_that_does_not_read_gives_the_same_answer_and_no_hit(hw):
    answer = hw.generate(PROMPT, **ASKED).choices[0].tokens
    again = hw.generate(PROMPT, reads=False, **ASKED)
    assert again.usage.cached_tokens == 0
    assert again.cache.why.kind == "not_shared"
    assert again.choices[0].tokens == answer


def test_a_prompt_that_does_not_store_leaves_nothing(hw):
    free = hw.stats().pages.free
    result = hw.generate(PROMPT, stores=False, n=3, **ASKED)
    assert hw.stats().pages.free == free
    assert len({tuple(choice.tokens) for choice in result.choices}) == 1
    assert cached(hw) == 0


def test_a_floor_keeps_a_tenant_s_kv_from_who_floods_the_cache(engine):
    hw = engine(floors={"a": "20 pages"})
    hw.generate(PROMPT, domain="a", **ASKED)
    hw.generate(PROMPT, domain="b", **ASKED)
    flood(hw)
    assert cached(hw, domain="a") == 57
    assert cached(hw, domain="b") == 0


def test_floors_leave_a_quarter_to_everybody(engine):
    with pytest.raises(BadSetting, match="floors"):
        engine(floors={"a": "49 pages"})


# Scored prompts


def own_logprobs(loaded, prompt):
    with torch.inference_mode(), loaded.model.own_attention() as net:
        logits = net(torch.tensor([prompt])).logits[0].float().log_softmax(-1)
    return [float(logits[at, token]) for at, token in enumerate(prompt[1:])]


@pytest.mark.parametrize("step_tokens", [2048, 16])
def test_a_prompt_s_own_tokens_are_scored_as_the_model_would(engine, loaded, step_tokens):
    hw = engine(step_tokens=step_tokens, max_running=8)
    expected = own_logprobs(loaded, PROMPT)
    for _ in range(2):  # once cold, once where all of it is cached
        result = hw.generate(PROMPT, prompt_logprobs=True, logprobs=2, **ASKED)
        found = [each.drawn for each in result.prompt_logprobs]
        assert found == pytest.approx(expected, abs=1e-4)
        assert all(len(each.top) == 2 for each in result.prompt_logprobs)
    assert hw.generate(PROMPT, **ASKED).usage.cached_tokens == 57, "what was scored is cached"


def test_a_prompt_of_one_token_has_nothing_to_score(hw):
    assert hw.generate([5], prompt_logprobs=True, **ASKED).prompt_logprobs == ()


# What a template is given


def test_tools_that_the_template_does_not_show_are_refused(hw):
    with pytest.raises(BadRequest, match="tools"):
        hw.generate(CHAT, tools=[TOOL], **ASKED)


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "add_generation_prompt", "tools"])
def test_a_caller_gives_variables_to_a_template_and_no_template(hw, name):
    with pytest.raises(BadRequest, match=name):
        hw.generate(CHAT, template_options={name: "{{ 1 }}"}, **ASKED)
