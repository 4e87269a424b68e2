"""From accounts to a report."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.observe.explain import explain
from headwater.schedule.account import Account, Miss

PROMPT = np.arange(100, dtype=np.int32)


def report(*accounts, decode=str):
    return explain(accounts, PROMPT, 10.0, decode)


def test_choices_without_a_sequence_of_their_own_add_nothing():
    whole = Account(prompt=100, cached=40, computed=60, recomputed=7, preemptions=2, generated=3)
    one, four = report(whole), report(whole, *(Account() for _ in range(3)))
    assert one == four
    assert (four.recomputed, four.preemptions, four.generated) == (7, 2, 3)


def test_each_choice_adds_what_it_drew_and_computed_again():
    whole = Account(prompt=100, computed=100, generated=3, recomputed=1)
    told = report(whole, Account(prompt=100, generated=4, recomputed=2))
    assert (told.generated, told.recomputed) == (7, 3)
    assert told.sources.computed == 100, "the prompt is the first one's"


@pytest.mark.parametrize(
    ("tier", "source"),
    [("ram", "ram"), ("disk", "disk"), ("remote", "remote"), ("a plug-in's", "remote")],
)
def test_a_tier_of_any_name_is_a_source(tier, source):
    told = report(Account(prompt=100, loaded=30, computed=70, tier=tier))
    assert getattr(told.sources, source) == told.reused == 30


def test_only_the_tokens_around_the_end_of_reuse_are_decoded():
    seen = []
    told = report(
        Account(prompt=100, miss=Miss("diverged", 50)), decode=lambda t: seen.append(t) or "x"
    )
    assert seen == [list(range(38, 50)), list(range(50, 62))]
    assert told.why.before == "x"


def test_there_is_always_a_reason():
    assert report(Account(prompt=100)).why.kind == "not_looked_up"
    assert report(Account(prompt=100)).why.sentence.endswith(".")
