"""The watch itself: of a step that is right nothing may be changed without being noticed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headwater.schedule.step import SlotRun
from headwater.testing.slots import Corrupt
from tests.schedule.stage import Stage, tokens


@pytest.fixture
def stage():
    """About to compute: an answer, and two prompts that share its first pages, one by a copy."""
    stage = Stage(page=4)
    stage.rng.random = lambda: 0.9  # the engine computes a step when it ends
    stage.send(tokens(10), max_tokens=9)
    stage.tick()
    stage.send([*tokens(8), 7, 7, 7])
    stage.send([*tokens(9), 8, 8, 8])
    stage.tick()
    assert len(stage.step.samples) == 3
    assert len(stage.step.copies) == 1
    assert sorted(segment.causal for segment in stage.step.segments)[-1]
    return stage


def compute(stage, step):
    stage.model.draw(step, stage.model.run(step))


def with_segment(step, index, segment):
    return replace(step, segments=[*step.segments[:index], segment, *step.segments[index + 1 :]])


def without_a_segment(step):
    for index in range(len(step.segments)):
        yield replace(step, segments=step.segments[:index] + step.segments[index + 1 :])


def with_a_segment_twice(step):
    for segment in step.segments:
        yield replace(step, segments=[*step.segments, segment])


def with_a_causal_flag_turned(step):
    for index, segment in enumerate(step.segments):
        if segment.row_end - segment.row_begin > 1:
            yield with_segment(step, index, replace(segment, causal=not segment.causal))


def with_a_segment_for_other_rows(step):
    for index, segment in enumerate(step.segments):
        if segment.row_begin > 0:
            yield with_segment(step, index, replace(segment, row_begin=segment.row_begin - 1))
        if segment.row_end - segment.row_begin > 1:
            yield with_segment(step, index, replace(segment, row_end=segment.row_end - 1))


def with_another_page(step):
    for index, segment in enumerate(step.segments):
        first, *rest = segment.runs
        moved = SlotRun((first.first + 4) % 256, first.count)
        yield with_segment(step, index, replace(segment, runs=(moved, *rest)))


def with_a_shorter_run(step):
    for index, segment in enumerate(step.segments):
        *rest, last = segment.runs
        shorter = SlotRun(last.first, last.count - 1)
        yield with_segment(step, index, replace(segment, runs=(*rest, shorter)))


def without_the_copy(step):
    yield replace(step, copies=[])


def with_another_token(step):
    for row in range(len(step.tokens)):
        yield replace(step, tokens=[*step.tokens[:row], 77, *step.tokens[row + 1 :]])


def with_another_position(step):
    for row in range(len(step.tokens)):
        other = step.positions[row] + 1
        yield replace(step, positions=[*step.positions[:row], other, *step.positions[row + 1 :]])


def with_a_slot_written_that_is_published(step):
    for row in range(len(step.tokens)):
        yield replace(step, slots=[*step.slots[:row], 0, *step.slots[row + 1 :]])


def with_a_row_sampled_for_somebody_else(step):
    first, second, *rest = step.samples
    swapped = [replace(first, row=second.row), replace(second, row=first.row), *rest]
    yield replace(step, samples=swapped)


FAULTS = [
    without_a_segment,
    with_a_segment_twice,
    with_a_causal_flag_turned,
    with_a_segment_for_other_rows,
    with_another_page,
    with_a_shorter_run,
    without_the_copy,
    with_another_token,
    with_another_position,
    with_a_slot_written_that_is_published,
    with_a_row_sampled_for_somebody_else,
]


def test_the_step_as_it_is_is_right(stage):
    compute(stage, stage.step)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_step_is_caught(stage, fault):
    right = stage.step
    held, published = list(stage.memory._held), bytes(stage.memory._published)
    faults = list(fault(right))
    assert faults
    for wrong in faults:
        stage.memory._held[:] = held
        stage.memory._published[:] = published
        with pytest.raises(Corrupt):
            compute(stage, wrong)


def test_kv_of_another_namespace_is_caught(stage):
    compute(stage, stage.step)
    with pytest.raises(Corrupt, match="is used for"):
        stage.memory.belong([0], b"elsewhere")


def test_a_page_read_after_it_was_freed_is_caught(stage):
    stage.memory.wipe([0])
    with pytest.raises(Corrupt, match="was not written"):
        compute(stage, stage.step)


def test_kv_of_old_weights_is_caught(stage):
    stage.model.swap("w1")
    with pytest.raises(Corrupt):
        compute(stage, stage.step)
