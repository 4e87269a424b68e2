"""What an engine is doing, in numbers, all of one moment."""

from __future__ import annotations

import msgspec

from headwater.schedule.machine import Machine


class Pages(msgspec.Struct, frozen=True):
    """Where the pool's pages are: free + cached + private + in_io = total.

    pinned: of the cached ones, those that somebody uses. evicted: ever.
    """

    total: int
    free: int
    cached: int
    private: int
    in_io: int
    pinned: int
    evicted: int


class Stats(msgspec.Struct, frozen=True):
    """
    running, loading, waiting: sequences, of which a request has one for each choice.
    """

    pages: Pages
    page: int
    running: int
    loading: int
    waiting: int
    epoch: str


def stats_of(machine: Machine) -> Stats:
    """Read the numbers. For the thread that owns the machine."""
    cache = machine.cache
    pool = cache.pool
    running, loading, waiting = machine.counts
    pages = Pages(
        total=pool.pages,
        free=pool.free,
        cached=cache.cached,
        private=pool.pages - pool.free - cache.cached - cache.in_io,
        in_io=cache.in_io,
        pinned=cache.pinned,
        evicted=cache.evicted,
    )
    return Stats(pages, pool.page, running, loading, waiting, machine.epoch)
