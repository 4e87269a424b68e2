"""Tokens whose KV is gone, remembered within a bound so that a miss can be explained.

A ghost is the part [ready, length) of a node that nobody has promised to fill. It costs its token
ids and no pages. The oldest are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict

from headwater.cache.listener import Listener
from headwater.cache.tokens import WIDTH
from headwater.cache.tree import Node, PrefixTree


class Ghosts:
    """Counts ghost tokens and forgets the oldest beyond `limit`."""

    def __init__(self, tree: PrefixTree, limit: int, listener: Listener) -> None:
        self.limit = limit
        self.tokens = 0
        self._tree = tree
        self._listener = listener
        self._of: OrderedDict[Node, int] = OrderedDict()

    def recount(self, node: Node) -> None:
        """Bring the count of a node up to date after its ready part, length or owner changed."""
        before = self._of.get(node, 0)
        is_ghost = node.owner is None and node.parent is not None
        after = node.length - node.ready if is_ghost else 0
        self.tokens += after - before
        if after:
            self._of[node] = after
        elif before:
            del self._of[node]

    def forget_surplus(self) -> None:
        """Drop the oldest ghosts until the bound holds."""
        for _ in range(len(self._of)):
            if self.tokens <= self.limit:
                return
            oldest = next(iter(self._of))
            if not self.forget(oldest):
                self._of.move_to_end(oldest)

    def forget(self, node: Node) -> bool:
        """Drop a node's ghost part, and with it what hangs below, which is ghost as well.

        False when it has to stay: what is ready is a part of a page, and a sibling's whole key; or
        somebody holds a path to its end (it was split below what they use).
        """
        below = list(node.children.values())
        if any(child.held for child in below) or (node.held and node.ready == 0):
            return False
        while below:
            child = below[-1]
            if child.children:
                below.extend(child.children.values())
                continue
            below.pop()
            self._remove(child)
        if node.ready == 0:
            self._remove(node)
        elif self._tree.has_twin(node, node.tokens[: node.ready * WIDTH]):
            return False
        else:
            self._listener.less(node)
            self._tree.shorten(node, node.ready)
            self.recount(node)
        return True

    def _remove(self, node: Node) -> None:
        self._listener.less(node)
        self._tree.remove(node)
        self.recount(node)
