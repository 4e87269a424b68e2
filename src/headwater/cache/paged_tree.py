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
from headwater.cache.shares import Shares
from headwater.cache.tokens import WIDTH
from headwater.cache.tree import Gone, Match, Node, PrefixTree, Share


class PagedTree:
    """A prefix tree whose nodes own pages of one pool.

    A path is *held* while a lease ends on it, a pin protects it, or one of its children is held.
    Only the first holder of a node counts towards its parent, so holding costs no more than the
    length of the path that was free before.
    """

    def __init__(
        self, pool: PagePool, policy: Policy | Shares, ghost_tokens: int, listener: Listener
    ) -> None:
        self.pool = pool
        self.page = pool.page
        self.policy = policy if isinstance(policy, Shares) else Shares(policy)
        self.listener = listener
        self.tree = PrefixTree(pool.page)
        self.ghosts = Ghosts(self.tree, ghost_tokens, listener)
        self.pins: set[Pin] = set()
        self.cached = 0  # pages owned by nodes
        self.pinned = 0  # of those, pages on a held path
        self.evicted = 0  # pages, ever

    def available(self, share: Share) -> int:
        """Pages that `grow` could hand out now to a member of a share."""
        return self.pool.free + self.cached - self.pinned - self.policy.protected(share)

    def room(self, domain: str) -> int:
        """Pages a request of a domain may come to hold when it runs alone."""
        return self.pool.pages - self.policy.reserved(self.policy.of(domain))

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

    def hold(self, namespace: bytes, key: bytes, pages: int) -> Pin | None:
        """Keep what is ready of a prompt, as far as `pages` pages go, until `unpin`.

        None when nothing is ready, or not a page is left.
        """
        match = self.tree.match(namespace, key)
        end = min(match.ready, pages * self.page)
        node = match.stop
        while node.parent is not None and node.start >= end:
            node = node.parent
        if node.parent is None or end == 0:
            return None
        cut = -(-end // self.page) * self.page - node.start
        if cut < node.length and cut <= node.ready:
            node = self._split(node, cut)
        root = node
        while root.parent is not None:
            root = root.parent
        return self._add_pin(node, root, min(end, node.start + node.ready))

    def flush(self, namespace: bytes, key: bytes) -> tuple[int, int]:
        """Forget the prompts that begin with `key`: (tokens freed, tokens still in use).

        What they share with prompts that begin otherwise stays, as far as the tree tells them
        apart: by their branches. What somebody uses stays, too.

            key      |. . . . . . . . .|
            tree  ── a ──┬── b ── c        b, c and d go, a and e stay
                         │    └── d
                         └── e
        """
        tops = self._beginning_with(namespace, key)
        above = tops[0].parent if tops else None
        while above is not None and above.parent is not None and len(above.children) == len(tops):
            tops, above = [above], above.parent
        before = sum(map(_ready_tokens, tops))
        for top in tops:
            self._prune(top)
        if above is not None:
            self._offer(above)
        kept = sum(map(_ready_tokens, tops))
        return before - kept, kept

    def _beginning_with(self, namespace: bytes, key: bytes) -> list[Node]:
        """The highest nodes below which all prompts begin with `key`; without any, what may be left
        of such a prompt: a leaf on the way to its end."""
        node, rest = self.tree.roots.get(namespace), key
        if node is None:
            return []
        while True:
            child = node.children.get(rest[: self.page * WIDTH])
            if child is None or child.tokens == rest or not rest.startswith(child.tokens):
                break
            node, rest = child, rest[len(child.tokens) :]
        found = [each for each in node.children.values() if each.tokens.startswith(rest)]
        if found:
            return found
        if node.parent is not None and not node.children:
            return [node]
        children = node.children.values()
        return [each for each in children if rest.startswith(each.tokens) and not each.children]

    # Evicting and pruning

    def _evict(self, pages: int, now: float, by: int, share: Share) -> None:
        """Free pages for a member of a share, which the caller has seen to be available to it."""
        while pages > 0:
            node, most = self.policy.next_for(share)
            if node is None:
                raise RuntimeError(f"the policy offers no leaf while {pages} pages are evictable")
            pages -= self._trim(node, min(pages, most), now, by)
        self.ghosts.forget_surplus()

    def _trim(self, node: Node, pages: int, now: float, by: int) -> int:
        """Free up to `pages` pages from the tail of a leaf; return how many."""
        parent = node.parent
        assert parent is not None
        freed = node.runs.cut(max(node.runs.pages - pages, 0))
        node.ready = min(node.ready, node.runs.pages * self.page)
        node.gone = Gone(now, by)
        self.pool.give(freed)
        self._own(node, -freed.pages)
        self.evicted += freed.pages
        self.listener.less(node)
        if node.ready == 0:
            self.policy.evict(node)
            parent.live_children -= 1
            self._offer(parent)
        self.ghosts.recount(node)
        return freed.pages

    def _prune(self, top: Node) -> int:
        """Free a node, unless it is a root, and all below it that nobody holds; leave no ghosts."""
        freed = 0
        todo = [(top, False)]
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
                self._own(node, -node.runs.pages)
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
        self._own(node, -surplus.pages)
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

    def _own(self, node: Node, pages: int) -> None:
        """Count pages that a node has got, or lost."""
        self.cached += pages
        node.share.cached += pages

    def _protect(self, node: Node, pages: int) -> None:
        """Count pages of a node that came under protection, or lost it."""
        self.pinned += pages
        node.share.pinned += pages

    def _hold(self, node: Node) -> None:
        """Protect a path. Only the first holder of a node has to go on to its parent."""
        at: Node | None = node
        while at is not None:
            at.held += 1
            if at.held > 1:
                return
            self._protect(at, at.runs.pages)
            at = at.parent

    def _unhold(self, node: Node) -> None:
        at: Node | None = node
        while at is not None:
            at.held -= 1
            if at.held > 0:
                return
            self._protect(at, -at.runs.pages)
            self._offer(at)
            at = at.parent


def _ready_tokens(top: Node) -> int:
    """Tokens with KV at a node and below."""
    tokens, todo = 0, [top]
    while todo:
        node = todo.pop()
        tokens += node.ready
        todo.extend(node.children.values())
    return tokens
