"""Work in flight is named in the tree, and never mistaken for KV that is there."""

from __future__ import annotations

from headwater.cache.tokens import pack
from tests.cache.stories import HOME, a_rig, arrive, compute, leave, ready, serve


def test_a_promise_is_not_ready():
    rig = a_rig()
    owner = arrive(rig, range(8))
    match = rig.look(HOME, pack(range(10)))
    assert (match.ready, match.promised, match.known) == (0, 8, 8)
    assert match.maker is owner.lease


def test_followers_find_what_the_owner_commits_chunk_by_chunk():
    rig = a_rig()
    owner = arrive(rig, range(8))
    for to in (3, 4, 8):
        compute(rig, owner, to)
        match = rig.look(HOME, pack(range(8)))
        assert (match.ready, match.promised) == (to, 8)


def test_written_but_not_committed_is_not_ready():
    rig = a_rig()
    owner = arrive(rig, range(8))
    rig.grow(owner, 8)
    rig.write(owner, 8)
    assert ready(rig, range(8)) == 0
    leave(rig, owner)
    assert ready(rig, range(8)) == 0


def test_a_cancelled_owner_takes_its_promise_along_and_leaves_its_kv():
    rig = a_rig()
    owner = arrive(rig, range(12))
    compute(rig, owner, 5)
    leave(rig, owner)
    match = rig.look(HOME, pack(range(12)))
    assert (match.ready, match.promised, match.known) == (5, 5, 5)
    assert match.maker is None


def test_a_cancelled_owner_that_computed_nothing_leaves_nothing():
    rig = a_rig()
    leave(rig, arrive(rig, range(12)))
    assert rig.cache.tree.nodes == 0


def test_what_one_has_promised_another_keeps_to_itself():
    rig = a_rig()
    owner, other = arrive(rig, range(8)), arrive(rig, range(8))
    compute(rig, other)
    assert ready(rig, range(8)) == 0
    compute(rig, owner)
    assert ready(rig, range(8)) == 8


def test_a_follower_swaps_its_own_pages_for_the_tree_s():
    rig = a_rig()
    owner, other = arrive(rig, range(8)), arrive(rig, range(8))
    compute(rig, other)
    compute(rig, owner)
    assert rig.cache.pool.free == 64 - 4
    compute(rig, other)
    assert rig.cache.pool.free == 64 - 2
    assert list(other.lease.table) == list(owner.lease.table)


def test_a_follower_inherits_the_promise_of_an_owner_who_left():
    rig = a_rig()
    owner, other = arrive(rig, range(8)), arrive(rig, range(8))
    leave(rig, owner)
    rig.promise(other)
    assert rig.look(HOME, pack(range(8))).maker is other.lease


def test_a_promise_made_late_moves_on_over_what_became_ready():
    rig = a_rig()
    late = rig.begin(HOME, pack(range(10)))
    serve(rig, range(8))
    rig.promise(late)
    assert late.computed == 8
    compute(rig, late)  # writing below 8 would overwrite what is published
    assert ready(rig, range(10)) == 10


def test_a_promise_made_late_drops_a_copy_that_is_not_needed_any_more():
    rig = a_rig()
    serve(rig, [1, 2, 3])
    leaf_in_use = rig.begin(HOME, pack([1, 2, 3]))
    late = rig.begin(HOME, pack([1, 2, 3, 4, 5]))
    assert late.lease.copy.count == 3
    serve(rig, [1, 2, 3, 4])
    rig.promise(late)
    assert late.lease.copy is None
    assert late.computed == 4
    compute(rig, late)
    leave(rig, leaf_in_use)


def test_slots_that_wait_to_be_copied_are_not_published():
    rig = a_rig()
    serve(rig, [1, 2, 3, 4, 5, 6, 7, 8])
    branch = arrive(rig, [1, 2, 3, 4, 5, 6, 9, 9])
    rig.grow(branch, 8)
    rig.commit(branch)  # as when it is cancelled before its first step
    rig.check()
    leave(rig, branch)
    assert rig.cache.match(HOME, pack([1, 2, 3, 4, 5, 6, 9, 9])).ready == 6


def test_the_source_of_a_copy_survives_its_owner():
    rig = a_rig()
    owner = arrive(rig, range(12))
    compute(rig, owner, 6)
    branch = arrive(rig, [0, 1, 2, 3, 4, 5, 99])
    compute(rig, owner, 8)
    other = arrive(rig, [*range(8), 50])  # cuts the owner's node at its ready end
    leave(rig, owner)
    compute(rig, branch)
    for sequence in (branch, other):
        leave(rig, sequence)
    rig.finish()


def test_pages_of_a_transfer_return_when_it_ends():
    rig = a_rig(pages=4)
    sequence = rig.begin(HOME, pack(range(8)))
    rig.grow(sequence, 8)
    rig.abort_in_transfer(sequence)
    rig.check()
    assert rig.cache.pool.free == 2
    assert not rig.grow(rig.begin(HOME, pack(range(12))), 12)
    rig.end_transfer(0)
    assert rig.cache.pool.free == 4


def test_a_pinned_path_outlives_its_lease():
    rig = a_rig(pages=4)
    sequence = arrive(rig, range(8))
    compute(rig, sequence)
    rig.pin(sequence)
    leave(rig, sequence)
    assert not rig.grow(rig.begin(HOME, pack(range(50, 62))), 12)
    rig.unpin(0)
    assert rig.grow(rig.sequences[-1], 12)
