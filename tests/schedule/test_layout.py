"""Rows and segments over random trees: every row reads its past exactly, what is shared once."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.cache.pages import PagePool
from headwater.cache.policies import LRU
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.tokens import WIDTH, count, pack
from headwater.schedule.events import Request
from headwater.schedule.layout import Layout
from headwater.schedule.sequence import Sequence
from headwater.testing.fake_model import slots_of

SINK = 4096

prompts = st.lists(st.integers(0, 1), min_size=1, max_size=24)
wishes = st.lists(
    st.tuples(prompts, st.integers(0, 24), st.integers(1, 12)), min_size=1, max_size=8
)


class Grove:
    """A cache, and sequences on it that are about to compute positions [begin, end)."""

    def __init__(self, page):
        self.page = page
        self.cache = PrefixCache(PagePool(256, page), LRU())
        self.sequences = []
        self.now = 0.0

    def warm(self, prompt):
        lease = self.lease(pack(prompt))
        self.commit(lease, pack(prompt), len(prompt))
        self.cache.release(lease, self.now)

    def plant(self, prompt, written, rows):
        """A sequence that has written so far and computes so many rows now, at least its last."""
        key = pack(prompt)
        lease = self.lease(key)
        if written > lease.written:
            self.commit(lease, key, min(written, len(prompt)))
        sequence = Sequence(Request(id=1, prompt=key, max_tokens=1), 0, b"", 0, 1 << 20)
        sequence.lease = lease
        sequence.begin = min(lease.written, sequence.known - 1)
        sequence.end = min(sequence.begin + rows, sequence.known)
        self.sequences.append(sequence)

    def lease(self, key):
        self.now += 1
        lease = self.cache.lease(b"", key, self.now)
        self.cache.promise(lease, key)
        assert self.cache.grow(lease, count(key), self.now)
        self.cache.copied(lease)
        return lease

    def commit(self, lease, key, written):
        self.cache.commit(lease, key[: written * WIDTH], written, self.now)

    def layout(self):
        return Layout(self.sequences, self.page, SINK)


@given(st.sampled_from([1, 4, 16]), st.lists(prompts, max_size=5), wishes)
def test_every_row_reads_its_own_past_exactly_once(page, warm, wishes):
    grove = planted(page, warm, wishes)
    layout = grove.layout()
    assert len(layout.tokens) == len(layout.positions) == len(layout.slots)
    rows = 0
    for sequence in grove.sequences:
        key = sequence.full_key()
        for position in range(sequence.begin, sequence.end):
            row = sequence.row + position - sequence.begin
            rows += 1
            past = sequence.lease.slots(0, position + 1, page)
            wanted = [slot for first, size in past for slot in range(first, first + size)]
            assert sorted(read_by(layout, row)) == sorted(wanted)
            assert layout.positions[row] == position
            assert layout.tokens[row] == int.from_bytes(key[position * WIDTH :][:WIDTH], "little")
            cached = position < sequence.lease.written
            assert layout.slots[row] == (SINK if cached else wanted[-1])
    assert rows == len(layout.tokens)


@given(st.sampled_from([1, 4, 16]), st.lists(prompts, max_size=5), wishes)
def test_a_slot_is_listed_once_for_one_slice_of_rows(page, warm, wishes):
    layout = planted(page, warm, wishes).layout()
    listed = Counter(slot for segment in layout.segments for slot in slots_of(segment.runs))
    assert not [slot for slot, times in listed.items() if times > 1]


def planted(page, warm, wishes):
    grove = Grove(page)
    for prompt in warm:
        grove.warm(prompt)
    for prompt, written, rows in wishes:
        grove.plant(prompt, written, rows)
    return grove


def read_by(layout, row):
    for segment in layout.segments:
        if segment.row_begin <= row < segment.row_end:
            slots = slots_of(segment.runs)
            yield from slots[: row - segment.row_begin + 1] if segment.causal else slots


def test_what_three_answers_share_is_one_run_for_all_their_rows():
    grove = Grove(4)
    for last in range(3):
        grove.plant([*range(100, 116), last, last], 17, 1)
    shared, *tails = grove.layout().segments
    assert (shared.row_begin, shared.row_end, shared.causal) == (0, 3, False)
    assert len(shared.runs) == 1
    assert sum(run.count for run in shared.runs) == 16
    assert [(tail.row_begin, tail.row_end) for tail in tails] == [(0, 1), (1, 2), (2, 3)]


def test_a_path_longer_than_pythons_stack_is_walked():
    grove = Grove(1)
    grove.cache.pool = PagePool(4096, 1)
    grove.warm(range(1200))
    for branch in range(1, 1200):
        grove.warm([*range(branch), 5000])
    for last in (1, 2):
        grove.plant([*range(1200), last], 0, 1)
    layout = grove.layout()
    assert grove.cache.tree.nodes > 2 * 1199
    assert len(slots_of(layout.segments[0].runs)) == 1200
    assert (layout.segments[0].row_begin, layout.segments[0].row_end) == (0, 2)
