"""Runs of pages, and the pool they come from."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.cache.pages import PagePool, Runs

pages = st.lists(st.integers(0, 12), max_size=20)


def runs_of(numbers):
    runs = Runs()
    for number in numbers:
        runs.append(number, 1)
    return runs


@given(pages)
def test_runs_are_a_list_of_pages(numbers):
    runs = runs_of(numbers)
    assert list(runs) == numbers
    assert len(runs) == runs.pages == len(numbers)
    assert [runs.page(index) for index in range(len(numbers))] == numbers


@given(pages)
def test_runs_are_as_few_as_can_be(numbers):
    breaks = sum(a + 1 != b for a, b in pairwise(numbers))
    assert len(runs_of(numbers).extents) == (breaks + 1 if numbers else 0)


@given(pages, st.integers(0, 20), st.integers(0, 20))
def test_a_slice_is_the_slice_of_the_list(numbers, begin, end):
    assert list(runs_of(numbers).slice(begin, end)) == numbers[begin:end]


@given(pages, st.integers(0, 20))
def test_a_cut_leaves_the_head_and_gives_the_tail(numbers, keep):
    runs = runs_of(numbers)
    assert list(runs.cut(keep)) == numbers[keep:]
    assert list(runs) == numbers[:keep]
    assert runs.pages == len(numbers[:keep])


@given(pages, pages)
def test_extending_joins_lists(a, b):
    runs = runs_of(a)
    runs.extend(runs_of(b))
    assert list(runs) == a + b


def test_a_page_beyond_the_end_is_an_error():
    for index in (2, -1):
        with pytest.raises(IndexError):
            runs_of([1, 2]).page(index)


def test_a_pool_of_nothing_is_refused():
    for size in ((0, 16), (4, 0)):
        with pytest.raises(ValueError, match="at least one page"):
            PagePool(*size)


def test_a_sequence_goes_on_where_it_ended():
    pool = PagePool(32)
    sequence = pool.take(3)
    for _ in range(4):
        sequence.extend(pool.take(2, after=sequence.page(sequence.pages - 1)))
    assert len(sequence.extents) == 1


def test_the_smallest_extent_that_fits_is_taken():
    pool = PagePool(20)
    taken = pool.take(20)
    for first, count in ((0, 8), (10, 3), (15, 5)):
        pool.give(taken.slice(first, first + count))
    assert pool.take(3).extents == [(10, 3)]
    assert pool.take(3, room=5).extents == [(0, 3)]
    assert pool.take(4, room=100).extents == [(3, 4)]


def test_what_fits_nowhere_is_put_together_from_the_largest():
    pool = PagePool(10)
    taken = pool.take(10)
    pool.give(taken.slice(0, 4))
    pool.give(taken.slice(6, 8))
    assert pool.take(5).extents == [(0, 4), (6, 1)]


def test_taking_nothing_gives_nothing():
    pool = PagePool(4)
    assert list(pool.take(0)) == []
    assert pool.take(0, after=0).extents == []
    assert pool.free == 4


def test_too_much_is_refused_and_changes_nothing():
    pool = PagePool(4)
    pool.take(1)
    before = pool.free_extents()
    with pytest.raises(MemoryError):
        pool.take(4)
    assert pool.free_extents() == before


def test_a_page_is_not_freed_twice():
    pool = PagePool(8)
    taken = pool.take(4)
    pool.give(taken)
    with pytest.raises(RuntimeError, match="freed twice"):
        pool.give(taken)


@pytest.mark.parametrize("foreign", [(7, 2), (8, 1), (-1, 1)])
def test_a_page_of_another_pool_is_not_freed(foreign):
    pool = PagePool(8)
    pool.take(8)
    with pytest.raises(RuntimeError, match="not of this pool"):
        pool.give(Runs([foreign]))


class PoolMachine(RuleBasedStateMachine):
    """Against a set of free pages."""

    def __init__(self):
        super().__init__()
        self.pool = PagePool(24)
        self.free = set(range(24))
        self.held = []

    @rule(count=st.integers(0, 8), room=st.integers(0, 8), data=st.data())
    def take(self, count, room, data):
        after = data.draw(st.sampled_from([None, *sorted(set(range(24)) - self.free)]))
        if count > len(self.free):
            with pytest.raises(MemoryError):
                self.pool.take(count, after=after, room=room)
            return
        is_next_free = after is not None and after + 1 in self.free
        runs = self.pool.take(count, after=after, room=room)
        taken = list(runs)
        assert len(set(taken)) == count
        assert set(taken) <= self.free
        if is_next_free and count:
            assert taken[0] == after + 1
        self.free -= set(taken)
        self.held.append(runs)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give(self, data):
        runs = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        keep = data.draw(st.integers(0, runs.pages))
        back = runs.cut(keep)
        self.pool.give(back)
        self.free |= set(back)
        self.held.append(runs)

    @invariant()
    def counts_and_extents_agree(self):
        extents = self.pool.free_extents()
        assert self.pool.free == len(self.free)
        assert {p for first, n in extents for p in range(first, first + n)} == self.free
        gaps = [b[0] - sum(a) for a, b in pairwise(extents)]
        assert all(gap > 0 for gap in gaps), "extents that touch are one"
        assert all(self.pool.is_free(page) == (page in self.free) for page in range(24))


TestPool = PoolMachine.TestCase
