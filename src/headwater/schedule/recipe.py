"""What a machine is built from, as data: a live engine and the replay of its log build the same."""

from __future__ import annotations

from functools import partial

import msgspec

from headwater.cache.no_cache import NoCache
from headwater.cache.pages import PagePool
from headwater.cache.policies import policy_named
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.shares import Shares
from headwater.schedule.machine import Machine
from headwater.schedule.settings import Settings
from headwater.schedule.state import NamespaceOf

CACHES: dict[str, type[PrefixCache]] = {"prefix": PrefixCache, "none": NoCache}


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """
    settings: the scheduler's. pages, page: the KV pool, in pages and tokens a page.
    cache, policy: by name. epoch: that of the weights in memory.
    floors: sharing domain -> pages of KV that are evicted for it alone.
    """

    settings: Settings
    pages: int
    page: int
    epoch: str
    cache: str = "prefix"
    policy: str = "lru"
    floors: dict[str, int] = {}

    def build(self, namespace_of: NamespaceOf) -> Machine:
        """A new machine. Raises ValueError for settings or names that make no sense."""
        if self.cache not in CACHES:
            raise ValueError(f"there is no cache named {self.cache!r}; known are: {sorted(CACHES)}")
        return Machine(
            PagePool(self.pages, self.page),
            Shares(policy_named(self.policy), self.floors, partial(policy_named, self.policy)),
            namespace_of,
            self.settings,
            epoch=self.epoch,
            cache_class=CACHES[self.cache],
        )
