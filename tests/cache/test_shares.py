"""Floors: up to theirs, what tenants have cached is evicted for themselves alone."""

from __future__ import annotations

import pytest

from headwater.cache.policies import LRU
from headwater.cache.shares import Shares
from headwater.cache.tokens import pack
from headwater.testing.rig import Rig
from tests.cache.stories import PAGE, arrive, ready, serve

QUIET, LOUD = b"quiet", b"loud"


def a_rig(pages=12, **floors):
    return Rig.of(Shares(LRU(), floors, LRU), pages=pages, page=PAGE)


def prompt(number, pages):
    return [number] * (pages * PAGE)


def flood(rig, times=20, pages=4):
    for number in range(times):
        serve(rig, prompt(1000 + number, pages), LOUD)


def test_without_a_floor_who_floods_the_cache_has_it_all():
    rig = a_rig()
    serve(rig, prompt(1, 4), QUIET)
    flood(rig)
    assert ready(rig, prompt(1, 4), QUIET) == 0


def test_a_floor_keeps_what_is_below_it():
    rig = a_rig(quiet=4)
    serve(rig, prompt(1, 4), QUIET)
    flood(rig)
    assert ready(rig, prompt(1, 4), QUIET) == 4 * PAGE


def test_what_is_above_the_floor_goes_by_last_use_as_everything():
    rig = a_rig(quiet=4)
    serve(rig, prompt(1, 4), QUIET)
    serve(rig, prompt(2, 3), QUIET)
    flood(rig)
    left = ready(rig, prompt(1, 4), QUIET) + ready(rig, prompt(2, 3), QUIET)
    assert left == 4 * PAGE
    assert ready(rig, prompt(2, 3), QUIET) == 3 * PAGE, "the later one stays longer"


def test_a_tenant_evicts_its_own_below_its_floor():
    rig = a_rig(quiet=12)
    for number in range(6):
        assert serve(rig, prompt(number, 4), QUIET) == 0
    assert ready(rig, prompt(5, 4), QUIET) == 4 * PAGE


def test_others_cannot_have_what_a_floor_keeps():
    rig = a_rig(quiet=4)
    serve(rig, prompt(1, 4), QUIET)
    loud = arrive(rig, prompt(2, 12), LOUD)
    assert not rig.grow(loud, 9 * PAGE)
    assert rig.grow(loud, 8 * PAGE)


def test_a_floor_counts_what_is_in_use_first():
    """Pages that its requests hold are safe anyway; the floor protects only the rest up to it."""
    rig = a_rig(quiet=4)
    serve(rig, prompt(1, 4), QUIET)
    serve(rig, prompt(2, 4), QUIET)
    arrive(rig, prompt(1, 4), QUIET)
    share = rig.cache.policy.of("quiet")
    assert (share.pinned, share.evictable, share.protected) == (4, 4, 0)
    loud = arrive(rig, prompt(3, 8), LOUD)
    assert rig.grow(loud, 8 * PAGE)
    assert ready(rig, prompt(2, 4), QUIET) == 0


def test_a_request_that_runs_alone_gets_all_but_the_floors():
    cache = a_rig(quiet=4, calm=2).cache
    assert [cache.room(domain) for domain in ("quiet", "calm", "loud")] == [10, 8, 6]


def test_a_match_fits_only_where_the_floors_of_others_leave_room():
    rig = a_rig(quiet=4)
    serve(rig, prompt(1, 4), QUIET)
    match = rig.look(LOUD, pack(prompt(2, 12)))
    assert rig.cache.fits(match, 8 * PAGE, "loud")
    assert not rig.cache.fits(match, 9 * PAGE, "loud")
    assert rig.cache.fits(match, 12 * PAGE, "quiet")


@pytest.mark.parametrize("domain", ["quiet", "loud"])
def test_shares_count_what_is_cached_and_forgotten(domain):
    rig = a_rig(quiet=4)
    serve(rig, prompt(1, 3), domain.encode())
    share = rig.cache.policy.of(domain)
    assert (share.cached, share.pinned) == (3, 0)
    rig.forget(domain.encode())
    assert (share.cached, share.pinned) == (0, 0)
