"""What is reused, to the token, and what is computed instead."""

from __future__ import annotations

import pytest

from headwater.cache.tokens import pack
from headwater.schedule.events import Arrived, Reject, Request, RunStep
from tests.schedule.stage import Stage, tokens

PAGE = 4


def sinks(stage, step):
    return step.slots.count(stage.memory.sink)


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
def test_the_same_prompt_three_times_is_computed_once(length):
    stage = Stage(page=PAGE)
    first, second, third = (stage.serve(tokens(length)) for _ in range(3))
    assert (first.cached, first.computed) == (0, length)
    assert (second.cached, second.computed) == (third.cached, third.computed) == (length - 1, 1)
    assert stage.text(1) == stage.text(2) == stage.text(3)


def test_a_full_hit_computes_one_token_into_the_sink():
    stage = Stage(page=PAGE)
    stage.serve(tokens(2 * PAGE))
    stage.send(tokens(2 * PAGE))
    step = stage.step
    assert (step.tokens, step.positions) == ([tokens(8)[-1]], [7])
    assert step.slots == [stage.memory.sink]
    assert not step.copies
    stage.play()
    assert stage.memory.pool.free == 64 - 2


def test_a_branch_in_mid_page_copies_what_it_shares():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    stage.send([*tokens(6), 7, 8, 9])
    copy = stage.step.copies[0]
    assert copy.count == 2
    assert stage.step.positions == [6, 7, 8]
    stage.play()
    assert stage.account(2).cached == 6


def test_a_prompt_that_begins_another_hits_to_its_end():
    stage = Stage(page=PAGE)
    stage.serve(tokens(11))
    for length in range(1, 12):
        account = stage.serve(tokens(length))
        assert (account.cached, account.computed) == (length - 1, 1)


def test_a_prompt_that_goes_on_from_another_computes_the_rest():
    stage = Stage(page=PAGE)
    stage.serve(tokens(5))
    account = stage.serve(tokens(11))
    assert (account.cached, account.computed) == (5, 6)


def test_one_token_is_a_prompt():
    stage = Stage(page=PAGE)
    assert stage.serve([5]).computed == 1
    assert stage.serve([5]).computed == 1
    assert stage.steps[-1].slots == [stage.memory.sink]


def test_the_next_turn_hits_what_was_generated():
    stage = Stage(page=PAGE)
    stage.serve(tokens(6), max_tokens=7)
    answer = stage.text(1)
    known = 6 + len(answer) - 1  # the last token was drawn, and never computed
    account = stage.serve([*tokens(6), *answer, 3, 4])
    assert account.cached == known


def test_a_prompt_may_fill_the_context_and_gets_one_token():
    stage = Stage(page=PAGE, context=12)
    stage.serve(tokens(12), max_tokens=5)
    assert stage.ending(1).reason == "length"
    assert len(stage.text(1)) == 1


def test_a_longer_prompt_is_refused_in_one_sentence():
    stage = Stage(page=PAGE, context=12)
    number = stage.send(tokens(13))
    why = stage.rejects[number]
    assert "13 tokens" in why
    assert "12" in why
    assert why.count(".") == 1
    assert why.endswith(".")


def test_the_domain_the_salt_and_the_weights_keep_prompts_apart():
    stage = Stage(page=PAGE)
    here = {"domain": "a", "salt": "x"}
    assert stage.serve(tokens(9), **here).cached == 0
    assert stage.serve(tokens(9), **here).cached == 8
    assert stage.serve(tokens(9), domain="b", salt="x").cached == 0
    assert stage.serve(tokens(9), domain="a", salt="y").cached == 0
    assert stage.serve(tokens(9), **here).cached == 8
    stage.replace_weights("restart")
    assert stage.serve(tokens(9), **here).cached == 0
    assert stage.serve(tokens(9), **here).cached == 8


def test_an_account_says_why_the_rest_missed():
    stage = Stage(page=PAGE)
    assert stage.serve(tokens(8)).miss.kind == "never_seen"
    assert stage.serve(tokens(12)).miss.kind == "new_suffix"
    assert stage.serve(tokens(12)).miss.kind == "all_reused"
    diverged = stage.serve([*tokens(6), 1, 2, 3]).miss
    assert (diverged.kind, diverged.at) == ("diverged", 6)


@pytest.mark.parametrize(
    ("about", "word"),
    [
        ({"prompt": b""}, "empty"),
        ({"prompt": b"\1\0"}, "empty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"choices": 0}, "n must"),
        ({"choices": 9}, "n is 9"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(about, word):
    stage = Stage()
    request = Request(**{"id": 1, "prompt": pack([1, 2]), "max_tokens": 1, **about})
    actions = stage.machine.handle(Arrived(request), 0.0)
    assert isinstance(actions[0], Reject)
    assert word in actions[0].why
    assert actions[0].why.endswith(".")
    assert stage.machine.is_idle


def test_a_number_in_use_is_refused_and_free_again_afterwards():
    stage = Stage()
    number = stage.send(tokens(3))
    request = stage.asked[number].request
    assert isinstance(stage.machine.handle(Arrived(request), stage.now)[0], Reject)
    stage.end_step()
    assert stage.machine.is_idle
    assert isinstance(stage.machine.handle(Arrived(request), stage.now)[0], RunStep)
