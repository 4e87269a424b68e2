"""Forgetting a namespace, as when weights are replaced."""

from __future__ import annotations

from headwater.cache.check import check_idle
from headwater.cache.tokens import pack
from tests.cache.stories import HOME, a_rig, arrive, compute, leave, ready, serve


def test_a_forgotten_namespace_is_unreachable_and_its_pages_are_free():
    rig = a_rig(pages=8)
    serve(rig, range(8))
    serve(rig, range(8), b"other")
    assert rig.forget(HOME) == 2
    assert ready(rig, range(8)) == 0
    assert ready(rig, range(8), b"other") == 8
    assert rig.cache.pool.free == 6


def test_forgetting_what_was_never_seen_does_nothing():
    rig = a_rig()
    assert rig.forget(b"never seen") == 0


def test_held_pages_come_back_on_release():
    rig = a_rig(pages=8)
    serve(rig, range(8))
    running = arrive(rig, range(10))
    compute(rig, running)
    assert rig.forget(HOME) == 0
    assert ready(rig, range(8)) == 0
    rig.check()
    leave(rig, running)
    assert rig.cache.pool.free == 8
    check_idle(rig.cache)


def test_a_pinned_path_comes_back_when_its_store_ends():
    rig = a_rig(pages=8)
    running = arrive(rig, range(10))
    compute(rig, running)
    rig.pin(running)
    leave(rig, running)
    rig.forget(HOME)
    rig.check()
    rig.unpin(0)
    assert rig.cache.pool.free == 8
    check_idle(rig.cache)


def test_who_ran_before_never_meets_who_comes_after():
    rig = a_rig()
    before = arrive(rig, range(8))
    compute(rig, before, 4)
    rig.forget(HOME)
    after = arrive(rig, range(8))
    assert after.computed == 0
    compute(rig, before)
    assert ready(rig, range(8)) == 0
    compute(rig, after)
    leave(rig, before)
    assert ready(rig, range(8)) == 8
    leave(rig, after)
    rig.finish()


def test_an_old_promise_falls_without_trace():
    rig = a_rig()
    before = arrive(rig, range(8))
    rig.forget(HOME)
    rig.promise(before)
    before.key += pack([9, 9])
    compute(rig, before)
    leave(rig, before)
    rig.finish()
