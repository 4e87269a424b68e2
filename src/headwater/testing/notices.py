"""Listens to the cache as a waiting request does, on behalf of one prompt.

A waiting request is matched once, and again only after the cache told that the place where its
match ended has changed. So a change of the match that comes without a notice is a request that
waits for a promise that has fallen, or computes what somebody else is computing.
"""

from __future__ import annotations

from headwater.cache.listener import Listener, Place
from headwater.cache.tokens import WIDTH
from headwater.cache.tree import Match, Node


class Notices:
    """Hands everything on to another listener and notes what concerns the prompt."""

    def __init__(self, onward: Listener) -> None:
        self._onward = onward
        self._at: set[Node] = set()
        self._behind: tuple[Place, int] | None = None
        self.came = False

    def expect(self, namespace: bytes, key: bytes, match: Match) -> None:
        """From now on: what changes where this match ends."""
        self.came = False
        self._at = set(match.places)
        self._behind = None
        at = match.node.end * WIDTH
        if at < len(key):
            place: Place = namespace if match.node.parent is None else match.node
            self._behind = place, int.from_bytes(key[at : at + WIDTH], "little")

    def more(self, place: Place, token: int) -> None:
        self.came = self.came or (place, token) == self._behind
        self._onward.more(place, token)

    def grown(self, node: Node) -> None:
        self._onward.grown(node)

    def less(self, node: Node) -> None:
        self.came = self.came or node in self._at
        self._onward.less(node)
