"""What goes first when memory is short, and what is remembered of it."""

from __future__ import annotations

import random

import pytest

from headwater.cache.policies import LRU
from headwater.cache.tokens import pack
from headwater.testing.rig import Rig
from tests.cache.stories import HOME, a_rig, arrive, compute, ready, serve


def test_the_tail_of_a_prefix_goes_before_its_head():
    rig = a_rig(pages=3, page=1)
    serve(rig, [1, 2, 3])
    assert serve(rig, [9]) == 0
    assert ready(rig, [1, 2, 3]) == 2


def test_half_evicted_a_long_prefix_is_still_a_prefix():
    rig = a_rig(pages=32)
    sequence = arrive(rig, range(64))
    for to in range(8, 65, 8):
        compute(rig, sequence, to)
    rig.release(sequence)
    serve(rig, range(100, 196))
    assert ready(rig, range(64)) == 32


def test_a_hot_prefix_survives_newcomers():
    rig = a_rig(pages=16)
    hot = list(range(16))
    serve(rig, hot)
    for newcomer in range(100, 200):
        serve(rig, [newcomer] * 16)
        assert serve(rig, [*hot, newcomer]) >= 16


def test_the_oldest_unused_prefix_goes_first():
    rig = a_rig(pages=4)
    for name in (1, 2, 3, 4):
        serve(rig, [name] * 4)
    serve(rig, [1] * 4)
    serve(rig, [5] * 4)
    assert [ready(rig, [name] * 4) for name in (1, 2, 3, 4, 5)] == [4, 0, 4, 4, 4]


def test_a_head_counts_as_used_when_its_tail_was():
    rig = a_rig(pages=6)
    talk = arrive(rig, [1] * 4)
    compute(rig, talk)
    serve(rig, [2] * 4)
    talk.key += pack([5] * 4)
    compute(rig, talk)
    rig.release(talk)
    serve(rig, [3] * 20)  # one more page than are free once [2] and the tail have gone
    assert ready(rig, [1] * 4) == 4
    assert ready(rig, [2] * 4) == 0


def test_an_evicted_prefix_is_remembered_with_when_and_by_whom():
    rig = a_rig(pages=4)
    serve(rig, range(8))
    evictor = arrive(rig, range(50, 62))
    compute(rig, evictor)
    match = rig.look(HOME, pack(range(8)))
    assert (match.ready, match.known) == (4, 8)
    gone = match.stop.gone if match.stop.gone is not None else match.node.gone
    assert gone.by == evictor.lease.holder
    assert 0 < gone.time <= rig.now


@pytest.mark.parametrize("limit", [0, 8, 100])
def test_what_is_remembered_is_bounded(limit):
    rig = a_rig(pages=8, ghost_tokens=limit)
    rng = random.Random(limit)
    for _ in range(200):
        serve(rig, [rng.randrange(5) for _ in range(rng.randrange(1, 24))])
        assert rig.cache.ghosts.tokens <= limit
        assert rig.cache.tree.nodes <= 2 * (8 + limit)


def test_a_prompt_that_was_evicted_is_computed_and_kept_again():
    rig = a_rig(pages=4)
    for _ in range(3):
        assert serve(rig, range(16)) == 0
        serve(rig, range(50, 66))
    serve(rig, range(16))
    assert ready(rig, range(16)) == 16


def test_grow_gives_all_or_nothing():
    rig = a_rig(pages=8)
    serve(rig, range(12))
    holder = arrive(rig, range(50, 58))
    compute(rig, holder)
    other = rig.begin(HOME, pack(range(100, 128)))
    assert not rig.grow(other, 28)
    assert ready(rig, range(12)) == 12
    assert rig.grow(other, 24)
    assert ready(rig, range(12)) == 0
    assert ready(rig, range(50, 58)) == 8


def test_exactly_the_needed_pages_suffice_though_the_hits_are_evictable():
    rig = a_rig(pages=4)
    serve(rig, range(8))
    again = arrive(rig, range(16))
    assert again.computed == 8
    compute(rig, again)


def test_room_to_grow_is_reserved_only_while_there_is_plenty():
    rig = a_rig(pages=16)
    rich = rig.begin(HOME, pack(range(4)))
    rig.grow(rich, 4, room=3)
    assert rich.lease.table.pages == 4
    poor = rig.begin(HOME, pack(range(50, 94)))
    rig.grow(poor, 44, room=3)
    assert poor.lease.table.pages == 11


def test_a_policy_that_refuses_is_named():
    class Refuses(LRU):
        def next(self):
            return None

    rig = Rig.of(Refuses(), pages=2, page=4)
    sequence = rig.begin(HOME, pack(range(8)))
    rig.run(sequence, 8)
    rig.release(sequence)
    with pytest.raises(RuntimeError, match="offers no leaf"):
        rig.grow(rig.begin(HOME, pack([9])), 1)
