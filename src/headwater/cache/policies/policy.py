"""What an eviction policy is: hooks that tell it what happens, and one question.

The cache decides *that* a page must go and takes it from the tail of a leaf; the policy says only
*which* leaf. It never sees token ids and cannot free anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

from headwater.cache.tree import Node


class Policy(Protocol):
    """Hooks, called by the cache in the order things happen; times are the caller's seconds."""

    def insert(self, node: Node, now: float) -> None:
        """KV became ready in a node, for the first time or more of it."""

    def use(self, path: Sequence[Node], now: float) -> None:
        """A request leased a path; its nodes from the leaf up. `last_use` is already set."""

    def split(self, upper: Node, node: Node) -> None:
        """`upper` is new and has what was the first part of `node`; it inherited its `note`."""

    def evict(self, node: Node) -> None:
        """The node lost its last page."""

    def offer(self, node: Node) -> None:
        """The node has become evictable. It may stop being so without notice."""

    def next(self) -> Node | None:
        """The leaf to take pages from: an evictable node, or None when there is none.

        The node stays on offer; the cache asks again after it has trimmed it.
        """


class Ranked:
    """A policy that is a sort key: the leaf with the smallest rank goes first.

    The idea that eight policies are eight keys is SGLang's. The heap is persistent and lazy: a node
    that was used since it was offered is skipped when it surfaces and comes back with its next
    offer; stale entries are swept when they outnumber the live ones, so no call rebuilds it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Node]] = []
        self._sweep_at = 1024

    def rank(self, node: Node) -> float:
        """Smaller goes first; must not fall while the node is on offer."""
        raise NotImplementedError

    def insert(self, node: Node, now: float) -> None:
        pass

    def use(self, path: Sequence[Node], now: float) -> None:
        pass

    def split(self, upper: Node, node: Node) -> None:
        pass

    def evict(self, node: Node) -> None:
        pass

    def offer(self, node: Node) -> None:
        # Equal ranks fall to the older node, not to the earlier offer: how often somebody has asked
        # `next`, which drops stale offers, must not change what is evicted.
        heapq.heappush(self._heap, (self.rank(node), node.serial, node))
        if len(self._heap) > self._sweep_at:
            self._sweep()

    def next(self) -> Node | None:
        heap = self._heap
        while heap:
            rank, _, node = heap[0]
            if node.is_evictable and rank == self.rank(node):
                return node
            heapq.heappop(heap)
        return None

    def _sweep(self) -> None:
        kept: dict[int, tuple[float, int, Node]] = {}
        for entry in self._heap:
            rank, _, node = entry
            if node.is_evictable and rank == self.rank(node):
                kept[id(node)] = entry
        self._heap = list(kept.values())
        heapq.heapify(self._heap)
        self._sweep_at = max(1024, 2 * len(self._heap))
