"""Who waits with a match is told when the place where it ended has changed, and only then."""

from __future__ import annotations

from headwater.cache.tokens import pack
from tests.cache.stories import HOME, a_rig, arrive, compute, leave, serve


def wait(rig, tokens):
    rig.follow(HOME, pack(tokens))
    return rig.notices


def test_elsewhere_may_change_what_it_likes():
    rig = a_rig()
    serve(rig, range(8))
    told = wait(rig, range(12))
    serve(rig, range(50, 60))
    serve(rig, range(8, 12))
    assert not told.came


def test_a_promise_behind_the_match_is_told():
    rig = a_rig()
    serve(rig, range(8))
    told = wait(rig, range(12))
    arrive(rig, range(10))
    assert told.came


def test_a_promise_that_falls_is_told():
    rig = a_rig()
    owner = arrive(rig, range(8))
    told = wait(rig, range(8))
    leave(rig, owner)
    assert told.came


def test_a_ghost_that_is_promised_again_is_told():
    rig = a_rig(pages=4)
    serve(rig, range(16))
    serve(rig, range(50, 66))
    told = wait(rig, range(16))
    arrive(rig, range(16))
    assert told.came


def test_a_ghost_that_is_forgotten_is_told():
    rig = a_rig(pages=4, ghost_tokens=16)
    serve(rig, range(16))
    serve(rig, range(50, 66))
    told = wait(rig, range(16))
    serve(rig, range(100, 116))
    assert told.came


def test_the_eviction_of_the_head_of_a_ghost_is_told():
    rig = a_rig(pages=2)
    serve(rig, range(8))
    rig.release(rig.begin(HOME, pack([0, 1, 2, 3, 9])))
    rig.cache._evict(1, 0.0, 0, rig.cache.policy.common)
    told = wait(rig, range(8))
    rig.cache._evict(1, 0.0, 0, rig.cache.policy.common)
    assert told.came


def test_a_longer_sibling_of_a_short_leaf_is_told():
    rig = a_rig()
    serve(rig, [1, 2])
    in_use = rig.begin(HOME, pack([1, 2]))
    told = wait(rig, [1, 2, 3, 4])
    branch = arrive(rig, [1, 2, 3, 4])
    assert told.came
    compute(rig, branch)
    leave(rig, in_use)


def test_more_kv_of_a_promise_that_one_waits_for_is_not_worth_a_notice():
    rig = a_rig()
    owner = arrive(rig, range(8))
    told = wait(rig, range(8))
    compute(rig, owner, 4)
    assert not told.came


def test_a_short_leaf_that_grows_away_from_what_matched_it_is_told():
    """All of it matched; now only its beginning does, as that of whoever begins so next."""
    rig = a_rig()
    growing = arrive(rig, [1])
    compute(rig, growing)
    told = wait(rig, [1, 0, 5])
    growing.key += pack([1, 1])
    compute(rig, growing)
    assert told.came
    told = wait(rig, [1, 0, 5])
    arrive(rig, [1, 0, 5, 5])
    assert told.came
