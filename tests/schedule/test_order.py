"""Who is next, who has waited long enough, and how seldom anybody is looked up."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.cache.tokens import pack
from headwater.schedule.events import Request
from headwater.schedule.line import ScannedLine, SortedLine
from headwater.schedule.order import Order
from headwater.schedule.sequence import Sequence
from tests.schedule.stage import ORDERS, Stage, tokens

STARVING = [Order.longest_prefix, Order.depth_first]


def finish_order(stage):
    return [asked.request.id for asked in stage.finished]


@pytest.mark.parametrize("order", ORDERS)
def test_a_warm_request_behind_a_cold_one(order):
    stage = Stage(running=1, step_tokens=8, order=order)
    stage.serve(tokens(24))
    busy = stage.send(tokens(20, kind=5))
    cold = stage.send(tokens(24, kind=4))
    warm = stage.send([*tokens(24), 1])
    stage.play()
    first = [cold, warm] if order is Order.fcfs else [warm, cold]
    assert finish_order(stage)[1:] == [busy, *first]


def test_the_room_in_a_step_counts_what_is_not_cached():
    stage = Stage(running=4, step_tokens=8)
    stage.serve(tokens(24))
    busy = stage.send([1, 2, 3], max_tokens=9)
    for last in (7, 8, 9):
        stage.send([*tokens(24), last])
    stage.tick()
    assert len(stage.step.tokens) == 4  # three prompts of 25 tokens and one row of an answer
    assert busy in stage.sequences()
    stage.play()


@pytest.mark.parametrize("order", ORDERS)
def test_a_hot_stream_does_not_starve_a_cold_request(order):
    stage = Stage(running=2, step_tokens=32, order=order, patience=6)
    finished = until_cold(stage)
    assert finished <= 4 + 6 + 2  # who waited before it, the patience, who runs


@pytest.mark.parametrize("order", STARVING)
def test_without_patience_the_same_stream_would(order):
    stage = Stage(running=2, step_tokens=32, order=order, patience=10**6)
    with pytest.raises(TimeoutError):
        until_cold(stage)


def until_cold(stage):
    """How many hot requests finish between the arrival of a cold one and its end."""
    stage.serve(tokens(24))
    hot = 0
    for _ in range(6):
        stage.send([*tokens(24), hot := hot + 1])
    cold = stage.send(tokens(24, kind=9))
    before = len(stage.finished)
    for _ in range(60):
        for _ in range(3):
            stage.send([*tokens(24), hot := hot + 1])
        stage.tick()
        if cold not in stage.live:
            return finish_order(stage).index(cold) - before
    raise TimeoutError


@pytest.mark.parametrize("order", ORDERS)
def test_a_higher_priority_goes_first(order):
    stage = Stage(running=1, order=order)
    busy = stage.send(tokens(4))
    low = stage.send(tokens(4, kind=2))
    high = stage.send(tokens(4, kind=3), priority=1)
    stage.play()
    assert finish_order(stage) == [busy, high, low]


@pytest.mark.parametrize("line", [SortedLine(Order.fcfs), ScannedLine(Order.response_ratio)])
def test_choices_of_a_prompt_go_in_their_order_in_whatever_order_they_came(line):
    request = Request(id=1, prompt=pack([1, 2]), max_tokens=5, choices=3)
    for choice in (2, 0, 1):
        sequence = Sequence(request, choice, b"", 7, 40)
        sequence.started = True
        line.put(sequence)
    for choice in range(3):
        first = line.first(0)
        assert first.choice == choice
        line.drop(first)


def test_depth_first_serves_shuffled_prompts_by_prefix():
    """Five prefixes, room for one: each is computed once."""
    stage = Stage(running=1, order=Order.depth_first, pages=10, page=4, patience=10**6)
    stage.send([1])
    for last in range(6):
        for kind in range(1, 6):
            stage.send([*tokens(24, kind), last])
    stage.play()
    assert sum(asked.ended[0].account.computed for asked in stage.finished) == 1 + 5 * 24 + 30


def test_a_sequence_is_looked_up_again_only_when_its_place_has_changed():
    stage = Stage(running=2, order=Order.longest_prefix)
    looked_up = Counter()
    match = stage.machine.cache.match

    def counting(namespace, key):
        looked_up[key] += 1
        return match(namespace, key)

    stage.machine.cache.match = counting
    stage.send(tokens(4, kind=8), max_tokens=60)
    stage.send(tokens(4, kind=9), max_tokens=2)
    apart = [tokens(12, kind) for kind in range(1, 6)]
    alike = [*tokens(9, kind=3), 1, 2, 3]
    for prompt in [*apart, alike]:
        stage.send(prompt)
    stage.play()
    # Once when there was room, and once by the lease when it was admitted.
    assert all(looked_up[pack(prompt)] == 2 for prompt in apart)
    assert 2 < looked_up[pack(alike)] < 8


def test_a_prompt_of_higher_priority_is_admitted_over_a_backlog_of_lower_ones_and_computed_first():
    stage = Stage(page=4, step_tokens=8)
    long = stage.send(tokens(64, kind=1))
    urgent = stage.send(tokens(8, kind=2), priority=1)
    assert stage.machine.counts.running == 2
    stage.tick()  # the step that ran when it came
    assert stage.sequences() == [urgent]
    stage.tick()
    assert urgent in {asked.request.id for asked in stage.finished}
    assert long in stage.live
    stage.play()


def test_prompts_of_one_priority_wait_for_their_turn_behind_a_backlog():
    stage = Stage(page=4, step_tokens=8)
    stage.send(tokens(64, kind=1))
    stage.send(tokens(8, kind=2))
    assert stage.machine.counts.running == 1
    stage.play()
