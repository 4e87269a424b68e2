"""Who shares KV with whom, and what a report says about it."""

from __future__ import annotations

import pytest

PROMPT = list(range(2, 60))
ASKED = {"max_tokens": 2, "ignore_eos": True, "temperature": 0.0}


def cached(hw, **whose):
    return hw.generate(PROMPT, **ASKED, **whose).usage.cached_tokens


def test_a_tenant_meets_itself_and_never_another(hw):
    assert cached(hw, domain="a") == 0
    assert cached(hw, domain="b") == 0
    assert cached(hw, domain="a") == len(PROMPT) - 1
    assert cached(hw, domain="b") == len(PROMPT) - 1


def test_a_salt_narrows_its_domain_and_opens_no_other(hw):
    assert cached(hw, domain="a", salt="s") == 0
    assert cached(hw, domain="a") == 0
    assert cached(hw, domain="b", salt="s") == 0
    assert cached(hw, domain="a", salt="s") == len(PROMPT) - 1
    assert cached(hw, domain="as") == 0, "domain and salt are not glued together"


def test_tenants_that_ask_at_once_do_not_wait_for_each_others_kv(hw):
    both = [hw.submit(PROMPT, domain=domain, **ASKED) for domain in ("a", "b")]
    assert [each.result().usage.cached_tokens for each in both] == [0, 0]


def test_requests_of_one_tenant_that_come_at_once_share_what_is_computed(hw):
    several = [hw.submit(PROMPT, domain="a", **ASKED) for _ in range(4)]
    reused = [each.result().usage.cached_tokens for each in several]
    assert sorted(reused) == [0] + [len(PROMPT) - 1] * 3


@pytest.mark.parametrize("secret", [bytes(range(32)), bytes(32)])
def test_sources_add_up_to_the_prompt(engine, secret):
    hw = engine(secret=secret)
    for _ in range(2):
        result = hw.generate(PROMPT, **ASKED)
        sources = result.cache.sources
        assert sources.device + sources.computed == result.usage.prompt_tokens == len(PROMPT)


# Why the rest was not reused


def why(hw, prompt, **asked):
    return hw.generate(prompt, **(ASKED | asked)).cache.why


def test_never_seen(hw):
    found = why(hw, "the quick brown fox")
    assert (found.kind, found.at, found.before) == ("never_seen", 0, "")
    assert found.after == "the quick brown fox"


def test_all_reused(hw):
    why(hw, "the quick brown fox")
    assert why(hw, "the quick brown fox").kind == "all_reused"


def test_diverged_with_the_text_around(hw):
    why(hw, "the quick brown fox jumps over the dog")
    found = why(hw, "the quick brown fox says hello to you")
    assert found.kind == "diverged"
    assert found.before.endswith("brown fox ") or found.before.endswith("brown fox")
    assert found.after.strip().startswith("says hello")
    assert repr(found.after) in found.sentence


def test_new_suffix(hw):
    why(hw, PROMPT, max_tokens=1)
    found = why(hw, [*PROMPT, 100, 101])
    assert (found.kind, found.at) == ("new_suffix", len(PROMPT))


def test_evicted_says_when_and_not_by_whom(hw):
    why(hw, PROMPT, domain="a")
    for at in range(5):
        why(hw, [at + 60, *range(100, 150)], domain="b")
    found = why(hw, PROMPT, domain="a")
    assert found.kind == "evicted"
    assert "s before to make room" in found.sentence
    assert not {"by", "request"} & set(found.__struct_fields__)


def test_another_tenant_does_not_show(hw):
    """What one is told is the same whether or not another has asked the same before."""
    alone = why(hw, PROMPT, domain="a")
    why(hw, PROMPT, domain="b")
    assert why(hw, PROMPT, domain="c") == alone
