"""What an engine is doing, in numbers, all of one moment."""

from __future__ import annotations

import msgspec

from headwater.observe.explain import Report
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


class Tokens(msgspec.Struct):
    """Tokens of all requests that have ended: of their prompts, reused, computed, drawn.

    recomputed: after preemptions and the like (see `Report`), counted nowhere else.
    """

    prompt: int = 0
    reused: int = 0
    computed: int = 0
    recomputed: int = 0
    generated: int = 0

    def add(self, report: Report) -> None:
        """Count a request that has ended."""
        self.prompt += report.reused + report.sources.computed
        self.reused += report.reused
        self.computed += report.sources.computed
        self.recomputed += report.recomputed
        self.generated += report.generated


class Stats(msgspec.Struct, frozen=True):
    """
    running, loading, waiting: sequences, of which a request has one for each choice.
    requests: how many have ended; `tokens` counts theirs.
    leases: paths of the tree in use. promises: prefixes being computed that others can wait for.
    holds: prefixes that are pinned. shares: cached pages by domain with a floor, "" for the rest.
    """

    pages: Pages
    page: int
    running: int
    loading: int
    waiting: int
    requests: int
    tokens: Tokens
    epoch: str
    leases: int
    promises: int
    holds: int
    shares: dict[str, int]


def stats_of(machine: Machine, requests: int, tokens: Tokens) -> Stats:
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
    return Stats(
        pages=pages,
        page=pool.page,
        running=running,
        loading=loading,
        waiting=waiting,
        requests=requests,
        tokens=msgspec.structs.replace(tokens),
        epoch=machine.epoch,
        leases=len(cache.leases),
        promises=sum(
            lease.node.owner is lease and not lease.node.is_ready for lease in cache.leases
        ),
        holds=machine.holds,
        shares={share.name: share.cached for share in machine.pools},
    )
