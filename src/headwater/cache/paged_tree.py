"""The prefix tree with pages behind it: what is held, what may go, and the counts of both.

Below the life of sequences (prefix_cache.py) and above the bare structure (tree.py). Whatever
takes pages from nodes or gives protection to paths is here, so that the counters which admission
relies on are kept in one place.
"""

from __future__ import annotations

from headwater.cache.ghosts import Ghosts
from headwater.cache.lease import Lease, Pin
from headwater.cache.listener import Listener
from headwater.cache.pages import PagePool, Runs
from headwater.cache.policies.policy import Policy
from headwater.cache.tree import Gone, Match, Node, PrefixTree


class PagedTree:
    """A prefix tree whose nodes own pages of one pool.

    A path is *held* while a lease ends on it, a pin protects it, or one of its children is held.
    Only the first holder of a node counts towards its parent, so holding costs no more than the
    length of the path that was free before.
    """

    def __init__(
        self, pool: PagePool, policy: Policy, ghost_tokens: int, listener: Listener
    ) -> None:
        self.pool = pool
        self.page = pool.page
        self.policy = policy
        self.listener = listener
        self.tree = PrefixTree(pool.page)
        self.ghosts = Ghosts(self.tree, ghost_tokens, listener)
        self.pins: set[Pin] = set()
        self.cached = 0  # pages owned by nodes
        self.pinned = 0  # of those, pages on a held path
        self.evicted = 0  # pages, ever

    @property
    def available(self) -> int:
        """Pages that `grow` could hand out now."""
        return self.pool.free + self.cached - self.pinned

    # Looking

    def match(self, namespace: bytes, key: bytes) -> Match:
        """How much of a packed prompt is here. Changes nothing, not even a time of last use."""
        return self.tree.match(namespace, key)

    def pin(self, lease: Lease) -> Pin:
        """Hold what the lease has published beyond the lease, while it is stored elsewhere."""
        node = lease.node
        while node.ready == 0 and node.parent is not None:  # a promise may fall; KV stays
            node = node.parent
        return self._add_pin(node, lease.root, node.start + node.ready)

    def unpin(self, pin: Pin) -> None:
        self._drop_pin(pin)
        self._tidy(pin.root)

    def forget(self, namespace: bytes) -> int:
        """Make a namespace unreachable at once; return how many pages that freed.

        Pages that running sequences still use are freed when these let go of them.
        """
        root = self.tree.uproot(namespace)
        return 0 if root is None else self._prune(root)

    def forget_all(self) -> None:
        """Make every namespace unreachable."""
        for namespace in list(self.tree.roots):
            self.forget(namespace)

    # Evicting and pruning

    def _evict(self, pages: int, now: float, by: int) -> None:
        while pages > 0:
            node = self.policy.next()
            if node is None:
                raise RuntimeError(f"the policy offers no leaf while {pages} pages are evictable")
            pages -= self._trim(node, pages, now, by)
        self.ghosts.forget_surplus()

    def _trim(self, node: Node, pages: int, now: float, by: int) -> int:
        """Free up to `pages` pages from the tail of a leaf; return how many."""
        parent = node.parent
        assert parent is not None
        freed = node.runs.cut(max(node.runs.pages - pages, 0))
        node.ready = min(node.ready, node.runs.pages * self.page)
        node.gone = Gone(now, by)
        self.pool.give(freed)
        self.cached -= freed.pages
        self.evicted += freed.pages
        self.listener.less(node)
        if node.ready == 0:
            self.policy.evict(node)
            parent.live_children -= 1
            self._offer(parent)
        self.ghosts.recount(node)
        return freed.pages

    def _prune(self, root: Node) -> int:
        """Free everything below a root that nobody holds, leaving no ghosts."""
        freed = 0
        todo = [(root, False)]
        while todo:
            node, children_done = todo.pop()
            if not children_done:
                todo.append((node, True))
                todo.extend((child, False) for child in node.children.values())
            elif node.held == 0 and node.parent is not None and not node.children:
                self.listener.less(node)
                if node.ready:
                    self.policy.evict(node)
                    node.parent.live_children -= 1
                freed += node.runs.pages
                self.cached -= node.runs.pages
                self.pool.give(node.runs)
                node.runs, node.ready = Runs(), 0
                self.tree.remove(node)
                self.ghosts.recount(node)
        return freed

    def _tidy(self, root: Node) -> None:
        """After a release: nothing is left of a forgotten namespace, nor of an empty one."""
        if self.tree.is_current(root):
            self.tree.drop_if_empty(root)
        else:
            self._prune(root)

    def _drop_last_page(self, node: Node) -> None:
        """Give up a page that is not full."""
        self.listener.less(node)
        surplus = node.runs.cut(node.ready // self.page)
        node.ready = node.runs.pages * self.page
        self.cached -= surplus.pages
        self.pool.give(surplus)
        if node.ready == 0:
            self.policy.evict(node)

    # Structure and counting

    def _split(self, node: Node, at: int) -> Node:
        self.listener.less(node)
        upper = self.tree.split(node, at)
        self.policy.split(upper, node)
        for pin in self.pins:
            if pin.node is node and pin.end <= upper.end:  # what it protects is in the upper part
                pin.node = upper
                upper.held += 1
                self._unhold(node)
        for part in (upper, node):
            self.ghosts.recount(part)
            self._offer(part)
        return upper

    def _offer(self, node: Node) -> None:
        if node.is_evictable:
            self.policy.offer(node)

    def _add_pin(self, node: Node, root: Node, end: int) -> Pin:
        pin = Pin(node, root, end)
        self.pins.add(pin)
        self._hold(node)
        return pin

    def _drop_pin(self, pin: Pin) -> None:
        self.pins.discard(pin)
        self._unhold(pin.node)

    def _hold(self, node: Node) -> None:
        """Protect a path. Only the first holder of a node has to go on to its parent."""
        at: Node | None = node
        while at is not None:
            at.held += 1
            if at.held > 1:
                return
            self.pinned += at.runs.pages
            at = at.parent

    def _unhold(self, node: Node) -> None:
        at: Node | None = node
        while at is not None:
            at.held -= 1
            if at.held > 0:
                return
            self.pinned -= at.runs.pages
            self._offer(at)
            at = at.parent
