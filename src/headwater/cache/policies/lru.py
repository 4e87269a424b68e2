"""Least recently used, leaf first.

Only leaves are ever on offer, so the head of a prefix is never taken before its tail; when a tail
is gone its parent becomes a leaf, as old as its own last use.
"""

from __future__ import annotations

from headwater.cache.policies.policy import Ranked
from headwater.cache.tree import Node


class LRU(Ranked):
    """The leaf whose last lease is longest ago goes first."""

    def rank(self, node: Node) -> float:
        return node.last_use
