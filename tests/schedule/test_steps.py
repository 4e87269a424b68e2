"""What goes into a step, and what the machine refuses to be told about one."""

from __future__ import annotations

import pytest

from headwater.cache.pages import PagePool
from headwater.cache.policies import LRU
from headwater.schedule.events import Event, StepDone, Wake
from headwater.schedule.machine import Machine
from headwater.schedule.settings import Settings
from headwater.testing.machine_shape import namespace_of
from tests.schedule.stage import Stage, tokens


def test_a_long_prompt_is_prefilled_in_chunks_of_a_step():
    stage = Stage(step_tokens=8)
    stage.send(tokens(20))
    chunks = []
    while stage.step is not None:
        chunks.append(stage.step.positions)
        stage.tick()
    assert chunks == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
    assert [len(step.samples) for step in stage.steps] == [0, 0, 1]


def test_answers_come_first_and_prompts_get_what_is_left():
    stage = Stage(step_tokens=8, running=4)
    answering = [stage.send(tokens(2, kind), max_tokens=30) for kind in (1, 2, 3)]
    stage.tick(2)
    prompt = stage.send(tokens(20, kind=4))
    for rows in (5, 5, 5, 5):
        stage.tick()
        assert len(stage.step.tokens) == 3 + rows
        assert set(answering) <= set(stage.sequences())
    assert prompt in stage.sequences()
    stage.play()


def test_prompts_are_prefilled_in_the_order_they_were_admitted():
    stage = Stage(step_tokens=8)
    first = stage.send(tokens(20))
    stage.tick()
    second = stage.send(tokens(20, kind=2))
    stage.play()
    assert [asked.request.id for asked in stage.finished] == [first, second]


def test_no_step_is_larger_than_the_batch_or_the_tokens_allow():
    stage = Stage(step_tokens=6, running=3)
    for kind in range(1, 9):
        stage.send(tokens(5, kind), max_tokens=4)
    stage.play()
    assert max(len(step.tokens) for step in stage.steps) == 6
    assert max(len(step.samples) for step in stage.steps) == 3


def test_a_lone_answer_repeats_until_its_page_is_full():
    stage = Stage(page=8)
    stage.send(tokens(9), max_tokens=30)
    stage.tick()
    repeats = []
    for _ in range(9):
        repeats.append((stage.step.positions[0] % 8, stage.step.repeat))
        stage.tick()
    assert repeats == [(1, 6), (2, 5), (3, 4), (4, 3), (5, 2), (6, 1), (7, 0), (0, 7), (1, 6)]
    stage.play()


def test_a_step_repeats_no_longer_than_the_shortest_answer():
    stage = Stage(page=16)
    stage.send(tokens(3), max_tokens=9)
    stage.send(tokens(3, kind=2), max_tokens=4)
    stage.tick(2)
    assert stage.step.repeat == 2
    stage.play()


def test_a_step_with_a_prompt_or_a_copy_does_not_repeat():
    stage = Stage(page=16)
    stage.send(tokens(5), max_tokens=9, choices=2)
    assert stage.step.repeat == 0
    stage.tick()
    assert len(stage.step.tokens) == 2
    assert stage.step.copies
    assert stage.step.repeat == 0
    stage.tick()
    assert stage.step.repeat > 0
    stage.play()


def test_what_is_prefilled_again_row_by_row_does_not_repeat():
    stage = Stage(page=8, pages=7, running=3, step_tokens=3)
    for kind in range(1, 5):
        stage.send(tokens(8, kind), max_tokens=4 + 7 * kind)
    stage.play()
    assert any(asked.ended[0].account.preemptions for asked in stage.finished)


def test_a_wake_changes_nothing():
    stage = Stage()
    stage.deliver(Wake())
    assert not stage.actions
    stage.send(tokens(4))
    stage.deliver(Wake())
    assert not stage.actions
    stage.play()


def test_a_step_that_does_not_run_cannot_be_done():
    stage = Stage()
    with pytest.raises(ValueError, match="not the one that runs"):
        stage.machine.handle(StepDone(1, [], []), 0.0)
    stage.send(tokens(4))
    with pytest.raises(ValueError, match="not the one that runs"):
        stage.machine.handle(StepDone(stage.step.id + 1, [1], [False]), 0.0)


@pytest.mark.parametrize(("drawn", "stopped"), [([], []), ([1, 2], [False, False]), ([1], [])])
def test_a_step_is_done_with_one_token_a_sample(drawn, stopped):
    stage = Stage()
    stage.send(tokens(4))
    with pytest.raises(ValueError, match="drew"):
        stage.machine.handle(StepDone(stage.step.id, drawn, stopped), 0.0)


def test_what_is_no_event_is_refused():
    with pytest.raises(TypeError, match="not an event"):
        Stage().machine.handle(Event(), 0.0)


def test_a_step_must_hold_a_row_of_everybody_who_runs():
    settings = Settings(context=10, running=8, step_tokens=7)
    with pytest.raises(ValueError, match="step_tokens"):
        Machine(PagePool(4, 4), LRU(), namespace_of, settings)
