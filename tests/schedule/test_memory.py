"""Too little memory: who waits, who is preempted, who ends, and that nobody hangs."""

from __future__ import annotations

import random

import pytest

from tests.schedule.stage import ORDERS, VOCABULARY, Stage, tokens

PAGE = 4


def test_two_requests_that_do_not_fit_together_both_finish():
    stage = Stage(page=PAGE, pages=7)
    first = stage.send(tokens(4 * PAGE), max_tokens=2 * PAGE)
    second = stage.send(tokens(3 * PAGE, kind=2), max_tokens=2 * PAGE)
    stage.play()
    assert len(stage.text(first)) == len(stage.text(second)) == 2 * PAGE
    assert stage.account(first).preemptions == 0
    assert stage.account(second).preemptions > 0


@pytest.mark.parametrize("order", ORDERS)
def test_two_loads_that_do_not_leave_room_to_go_on_both_finish(order):
    stage = Stage(page=PAGE, pages=7, tier=True, order=order)
    for kind, pages in ((1, 4), (2, 3)):
        stage.serve(tokens(pages * PAGE, kind))
        stage.serve(tokens(7 * PAGE, kind=9))  # drives it out of the device, not of the tier
    first = stage.send(tokens(4 * PAGE), max_tokens=PAGE)
    second = stage.send(tokens(3 * PAGE, kind=2), max_tokens=PAGE)
    assert stage.machine.counts[1] == 2
    stage.play()
    assert stage.account(first).loaded == 4 * PAGE
    assert stage.account(second).loaded == 3 * PAGE
    assert len(stage.text(first)) == len(stage.text(second)) == PAGE


def test_a_prompt_larger_than_the_pool_is_refused_in_one_sentence():
    stage = Stage(page=PAGE, pages=7)
    number = stage.send(tokens(7 * PAGE + 1))
    assert "29 tokens" in stage.rejects[number]
    assert "28" in stage.rejects[number]
    assert stage.rejects[number].count(".") == 1


def test_a_prompt_as_large_as_the_pool_gets_one_token():
    stage = Stage(page=PAGE, pages=7)
    stage.serve(tokens(7 * PAGE), max_tokens=5)
    assert stage.ending(1).reason == "length"
    assert len(stage.text(1)) == 1


def test_an_answer_that_outgrows_the_pool_alone_ends_with_length():
    stage = Stage(page=PAGE, pages=7)
    stage.serve(tokens(PAGE), max_tokens=100)
    assert stage.ending(1).reason == "length"
    assert len(stage.text(1)) == 6 * PAGE + 1


def test_when_one_choice_outgrows_the_pool_the_others_go_on():
    stage = Stage(page=PAGE, pages=7)
    stage.serve(tokens(PAGE), max_tokens=100, choices=3)
    for choice in range(3):
        assert stage.ending(1, choice).reason == "length"
        assert len(stage.text(1, choice)) == 6 * PAGE + 1


def test_the_youngest_is_preempted_and_its_prefix_stays_cached():
    stage = Stage(page=PAGE, pages=8)
    old = stage.send(tokens(2 * PAGE), max_tokens=4 * PAGE)
    young = stage.send(tokens(3 * PAGE, kind=2), max_tokens=2 * PAGE)
    while not stage.machine.counts[2]:
        stage.tick()
    assert stage.sequences() == [old]
    match = stage.machine.cache.match(b"w0//", stage.asked[young].request.prompt)
    assert match.ready > 0
    stage.play()
    assert stage.account(young).preemptions >= 1
    assert stage.account(old).preemptions == 0


def test_of_a_lower_priority_even_the_older_is_preempted():
    stage = Stage(page=PAGE, pages=8)
    old = stage.send(tokens(3 * PAGE), max_tokens=4 * PAGE)
    young = stage.send(tokens(3 * PAGE, kind=2), max_tokens=3 * PAGE, priority=1)
    stage.play()
    assert stage.account(young).preemptions == 0
    assert stage.account(old).preemptions >= 1


def test_random_prompts_hit_nothing_even_when_they_are_preempted():
    rng = random.Random(4)
    stage = Stage(page=PAGE, pages=12, running=6, step_tokens=16)
    numbers = []
    for _ in range(60):
        prompt = [rng.randrange(10**9) for _ in range(rng.randint(1, 20))]
        numbers.append(stage.send(prompt, max_tokens=rng.randint(1, 20)))
        stage.tick()
    stage.play()
    accounts = [stage.account(number) for number in numbers]
    assert sum(account.preemptions for account in accounts) > 10
    assert sum(account.cached for account in accounts) == 0
    assert all(account.computed == account.prompt for account in accounts)


def test_what_is_computed_again_after_a_preemption_is_counted_apart():
    stage = Stage(page=PAGE, pages=7, running=2)
    stage.send(tokens(3 * PAGE), max_tokens=4 * PAGE)
    young = stage.send(tokens(3 * PAGE, kind=2), max_tokens=4 * PAGE)
    stage.play()
    account = stage.account(young)
    assert account.preemptions > 0
    assert account.recomputed > 0
    assert (account.cached, account.computed) == (0, 3 * PAGE)


def test_two_thousand_short_requests_leave_the_pool_as_it_was():
    stage = Stage(page=PAGE, pages=16, running=4, context=24, step_tokens=16)
    rng = random.Random(5)
    for number in range(2000):
        stage.send([rng.randrange(VOCABULARY)] * rng.randint(1, 6), max_tokens=1)
        if number % 4 == 3:
            while stage.step is not None:
                stage.tick()
    stage.play()
    cache = stage.machine.cache
    assert cache.pool.free + cache.cached == 16
    cache.forget(b"w0//")
    assert cache.pool.free_extents() == [(0, 16)]
