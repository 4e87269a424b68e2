"""A cache that keeps nothing has the same verbs and the same law."""

from __future__ import annotations

from headwater.cache.check import check, check_idle
from headwater.cache.no_cache import NoCache
from headwater.cache.pages import PagePool
from headwater.cache.policies import LRU
from headwater.cache.tokens import pack


def test_the_same_prompt_is_computed_every_time():
    cache = NoCache(PagePool(4, 4), LRU())
    key = pack(range(10))
    for now in range(3):
        assert cache.match(b"", key).ready == 0
        lease = cache.lease(b"", key, now)
        cache.promise(lease, key)
        assert cache.grow(lease, 10, now)
        cache.commit(lease, key, 10, now)
        assert lease.written == 10
        check(cache)
        cache.release(lease, now)
    assert cache.pool.free == 4
    check_idle(cache)


def test_it_refuses_what_does_not_fit():
    cache = NoCache(PagePool(4, 4), LRU())
    lease = cache.lease(b"", pack(range(17)), 0.0)
    assert not cache.grow(lease, 17, 0.0)
    assert cache.forget(b"") == 0
