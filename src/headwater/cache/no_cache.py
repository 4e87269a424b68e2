"""A prefix cache that keeps nothing: the baseline, and a double for tests."""

from __future__ import annotations

from headwater.cache.lease import Lease
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.tree import Match, Node


class NoCache(PrefixCache):
    """The same verbs; every match is empty and nothing is published."""

    def match(self, namespace: bytes, key: bytes) -> Match:
        nothing = Node(None, b"", 0, self.policy.common)
        return Match(0, 0, 0, nothing, None, nothing, None)

    def promise(self, lease: Lease, key: bytes) -> None:
        pass

    def commit(self, lease: Lease, key: bytes, written: int, now: float) -> None:
        lease.written = written
