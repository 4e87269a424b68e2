"""Parts of the pool: what each tenant's KV takes, and how much of it others have to leave.

    pool     |  free  |  common  |  acme, floor 100  |  umbrella, floor 50  |
                       ^ everybody without a floor

A *floor* protects KV that is cached, not what requests are using: up to its floor a tenant's KV is
evicted for the tenant alone. So one who floods the cache with prompts that never come again takes
what is free and what is above the floors, and nothing below them. Where no floor is set there is
one share, and nothing of this shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from headwater.cache.policies.policy import Policy
from headwater.cache.tree import Node, Share


class Shares:
    """The shares of a pool, each with an eviction policy of its own. To the tree it is a policy."""

    def __init__(
        self,
        policy: Policy,
        floors: Mapping[str, int] | None = None,
        another: Callable[[], Policy] | None = None,
    ) -> None:
        """policy: of the common share. floors: sharing domain -> pages. another: makes the policy
        of a domain with a floor."""
        self.common = Share("", 0)
        self._policies = {self.common: policy}
        self._of: dict[str, Share] = {}
        for domain, floor in (floors or {}).items():
            assert another is not None, "floors need policies"
            share = self._of[domain] = Share(domain, floor)
            self._policies[share] = another()

    def __iter__(self) -> Iterator[Share]:
        return iter(self._policies)

    def of(self, domain: str) -> Share:
        """The share that a domain's KV counts in."""
        return self._of.get(domain, self.common)

    def protected(self, share: Share) -> int:
        """Pages that are evictable, but not for `share`."""
        if not self._of:
            return 0
        return sum(each.protected for each in self._policies if each is not share)

    def reserved(self, share: Share) -> int:
        """Pages that `protected` can come to."""
        return sum(each.floor for each in self._of.values() if each is not share)

    def next_for(self, share: Share) -> tuple[Node | None, int]:
        """The leaf to take pages from when `share` needs some, and how many at most.

        Of all that may be taken the policies' own candidates are compared by their last use.
        """
        best: Node | None = None
        most = 0
        for each, policy in self._policies.items():
            spare = each.evictable if each is share else each.evictable - each.protected
            if spare <= 0:
                continue
            node = policy.next()
            if node is None:
                raise RuntimeError(f"a policy offers no leaf while {spare} pages are evictable")
            if best is None or (node.last_use, node.serial) < (best.last_use, best.serial):
                best, most = node, spare
        return best, most

    # The hooks of a policy, each handed on to that of the node's share.

    def insert(self, node: Node, now: float) -> None:
        self._policies[node.share].insert(node, now)

    def use(self, path: Sequence[Node], now: float) -> None:
        self._policies[path[0].share].use(path, now)

    def split(self, upper: Node, node: Node) -> None:
        self._policies[node.share].split(upper, node)

    def evict(self, node: Node) -> None:
        self._policies[node.share].evict(node)

    def offer(self, node: Node) -> None:
        self._policies[node.share].offer(node)

    def next(self) -> Node | None:
        """Any leaf that is evictable for somebody."""
        for policy in self._policies.values():
            node = policy.next()
            if node is not None:
                return node
        return None
