"""Keeping a prefix on request, forgetting prompts on request, and leases that stay apart."""

from __future__ import annotations

import pytest

from headwater.cache.tokens import pack
from tests.cache.stories import HOME, PAGE, a_rig, arrive, compute, leave, ready, serve

HEAD = [1] * (2 * PAGE)


def story(*tails):
    """A rig that has served prompts with one head."""
    rig = a_rig(pages=32)
    for tail in tails:
        serve(rig, [*HEAD, *tail])
    return rig


def flood(rig):
    for number in range(100, 140):
        serve(rig, [number] * (4 * PAGE), b"elsewhere")


def test_what_is_held_outlives_a_flood_and_what_is_not_does_not():
    rig = story([2] * PAGE, [3] * PAGE)
    rig.hold(HOME, pack([*HEAD, *[2] * PAGE]), 32)
    flood(rig)
    assert ready(rig, [*HEAD, *[2] * PAGE]) == 3 * PAGE
    assert ready(rig, [*HEAD, *[3] * PAGE]) == 2 * PAGE
    rig.unpin(0)
    flood(rig)
    assert ready(rig, HEAD) == 0


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 9])
def test_a_hold_goes_as_far_as_its_pages(pages):
    rig = story([2] * PAGE)
    pin = rig.cache.hold(HOME, pack([*HEAD, *[2] * PAGE, 9]), pages)
    assert (0 if pin is None else pin.end) == min(pages, 3) * PAGE
    flood(rig)
    rig.check()
    assert ready(rig, [*HEAD, *[2] * PAGE]) == min(pages, 3) * PAGE


def test_a_hold_of_something_unknown_is_none():
    rig = story([2] * PAGE)
    assert rig.cache.hold(HOME, pack([7, 7, 7]), 9) is None
    assert rig.cache.hold(b"nobody", pack(HEAD), 9) is None


def test_a_held_leaf_is_gone_on_from_by_a_copy():
    rig = story([2, 2])
    rig.hold(HOME, pack([*HEAD, 2, 2]), 9)
    sequence = arrive(rig, [*HEAD, 2, 2, 5])
    assert sequence.computed == len(HEAD) + 2
    assert sequence.lease.copy is not None
    compute(rig, sequence)
    leave(rig, sequence)
    rig.verify_all()


def flush(rig, tokens, namespace=HOME):
    rig.flush(namespace, pack(tokens))
    rig.check()
    rig.verify_all()


def test_flushing_a_prompt_leaves_what_it_shares():
    rig = story([2] * PAGE, [3] * PAGE)
    flush(rig, [*HEAD, *[2] * PAGE])
    assert ready(rig, [*HEAD, *[2] * PAGE]) == len(HEAD)
    assert ready(rig, [*HEAD, *[3] * PAGE]) == 3 * PAGE


def test_flushing_the_only_prompt_leaves_nothing():
    rig = story([2] * PAGE)
    flush(rig, [*HEAD, 2])
    assert (rig.cache.cached, rig.cache.tree.nodes, len(rig.cache.tree.roots)) == (0, 0, 0)


def test_flushing_a_head_forgets_all_that_begin_with_it():
    rig = story([2] * PAGE, [3] * PAGE, [3, 3])
    serve(rig, [9] * PAGE)
    flush(rig, HEAD[:3])
    assert ready(rig, HEAD) == 0
    assert ready(rig, [9] * PAGE) == PAGE


def test_an_empty_prefix_is_everything_of_a_namespace():
    rig = story([2] * PAGE, [3] * PAGE)
    serve(rig, HEAD, b"elsewhere")
    flush(rig, [])
    assert HOME not in rig.cache.tree.roots
    assert ready(rig, HEAD, b"elsewhere") == len(HEAD)


def test_what_is_in_use_stays_and_is_counted():
    rig = story([2] * PAGE, [3] * PAGE)
    user = arrive(rig, [*HEAD, *[2] * PAGE, 5])
    gone, in_use = rig.cache.flush(HOME, pack(HEAD))
    rig.check()
    assert (gone, in_use) == (PAGE, 3 * PAGE)
    compute(rig, user)
    leave(rig, user)
    assert rig.cache.flush(HOME, pack(HEAD)) == (3 * PAGE + 1, 0)


def test_flushing_what_was_never_there_does_nothing():
    rig = story([2] * PAGE)
    assert rig.cache.flush(HOME, pack([*HEAD, 5, 5])) == (0, 0)
    assert rig.cache.flush(b"nobody", pack(HEAD)) == (0, 0)
    assert ready(rig, HEAD) == len(HEAD)


def test_what_eviction_left_of_a_prompt_is_flushed_with_it():
    rig = a_rig(pages=4, ghost_tokens=0)
    serve(rig, [1] * (4 * PAGE))
    serve(rig, [2] * PAGE, b"elsewhere")
    assert ready(rig, [1] * (4 * PAGE)) == 3 * PAGE
    flush(rig, [1] * (4 * PAGE))
    assert ready(rig, [1] * (4 * PAGE)) == 0


def test_what_is_kept_apart_is_not_found_by_others_until_it_is_published():
    rig = a_rig()
    sequence = rig.begin(HOME, pack([*HEAD, 5]))
    sequence.lease.apart = True
    rig.promise(sequence)
    compute(rig, sequence)
    assert ready(rig, HEAD) == 0
    sequence.lease.apart = False
    rig.commit(sequence)
    assert ready(rig, [*HEAD, 5]) == len(HEAD) + 1
    leave(rig, sequence)


def test_what_is_kept_apart_to_its_end_leaves_no_page():
    rig = a_rig()
    sequence = rig.begin(HOME, pack(HEAD))
    sequence.lease.apart = True
    compute(rig, sequence)
    leave(rig, sequence)
    assert rig.cache.pool.free == rig.cache.pool.pages
