"""Who wants to know that the tree changed.

A waiting request is matched once and again only when the place where its match ended changes; this
is how the scheduler hears of it.
"""

from __future__ import annotations

from typing import Protocol

from headwater.cache.tree import Node

Place = Node | bytes
"""A node, or the namespace for its root: roots come and go with their content."""


class Listener(Protocol):
    """Called in the middle of a change: note it, and look at the cache later."""

    def more(self, place: Place, token: int) -> None:
        """Behind `place` the tree now names tokens that begin with `token`."""

    def grown(self, node: Node) -> None:
        """More of the node's tokens have KV."""

    def less(self, node: Node) -> None:
        """The node lost KV, a promise or its lower part, is forgotten, or its ghost is promised:
        a match that ends there does not hold any more."""


class Silence:
    """Nobody listens."""

    def more(self, place: Place, token: int) -> None:
        pass

    def grown(self, node: Node) -> None:
        pass

    def less(self, node: Node) -> None:
        pass
