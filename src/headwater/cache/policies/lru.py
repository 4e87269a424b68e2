"""Least recently used, leaf first.

A lease touches its whole path, so an ancestor is never older than its leaves, and taking leaves in
the order of their last use never takes the head of a prefix before its tail.
"""

from __future__ import annotations

from headwater.cache.policies.policy import Ranked
from headwater.cache.tree import Node


class LRU(Ranked):
    """The leaf whose last lease is longest ago goes first."""

    def rank(self, node: Node) -> float:
        return node.last_use
