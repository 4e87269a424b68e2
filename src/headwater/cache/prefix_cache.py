"""The prefix cache: leases on paths of the tree, and the pages behind them.

The only place that joins the tree, the page pool and the eviction policy. A sequence's life:

    lease    take the longest ready prefix, and the right to it
    promise  name the rest of the prompt in the tree: others may wait for it
    grow     get pages for the next positions, evicting what nobody uses
    commit   positions were written: publish them
    release  give everything up; what was published stays, evictable

    0            lease.node.end      written        grown
    |  the tree's, shared  |  being made, private  |  empty  |

Everything is decided and counted here and nothing is moved: KV is written by whoever runs the
model, between `grow` and `commit`. No method blocks, reads a clock or draws a random number.
"""

from __future__ import annotations

from headwater.cache.lease import Lease, PendingCopy
from headwater.cache.listener import Listener, Place, Silence
from headwater.cache.paged_tree import PagedTree
from headwater.cache.pages import PagePool, Runs
from headwater.cache.policies.policy import Policy
from headwater.cache.shares import Shares
from headwater.cache.tokens import WIDTH
from headwater.cache.tree import Match, Node


class PrefixCache(PagedTree):
    """KV pages shared by token prefix, within namespaces.

    The law it keeps (checked by check.py): free + cached + private + in I/O = all pages, where
    cached pages belong to nodes, private ones to leases, and pages in I/O to transfers whose lease
    is gone.
    """

    def __init__(
        self,
        pool: PagePool,
        policy: Policy | Shares,
        *,
        ghost_tokens: int | None = None,
        listener: Listener | None = None,
    ) -> None:
        """ghost_tokens: how many tokens to remember without KV; as many as the pool holds when
        not given."""
        limit = pool.pages * pool.page if ghost_tokens is None else ghost_tokens
        super().__init__(pool, policy, limit, listener if listener is not None else Silence())
        self.leases: set[Lease] = set()
        self.in_io = 0  # pages of transfers that outlived their lease

    def fits(self, match: Match, positions: int, domain: str = "") -> bool:
        """Whether a lease of a domain on this match could grow to `positions`. Changes nothing.

        Pages that are evictable now, but would be on the leased path, are not counted as room.
        """
        ready = match.ready // self.page
        kept, node = 0, match.stop
        pages = ready - node.start // self.page  # of `stop`, those in front of a branch
        while node.parent is not None and node.held == 0:
            kept += pages
            node = node.parent
            pages = node.runs.pages
        available = self.available(self.policy.of(domain))
        return -(-positions // self.page) - ready + kept <= available

    # The life of a sequence

    def lease(
        self, namespace: bytes, key: bytes, now: float, holder: int = 0, domain: str = ""
    ) -> Lease:
        """Take the longest ready prefix of `key`, for a member of a sharing domain.

        A leaf that ends exactly there and that nobody uses is adopted: the sequence goes on in its
        last page. Otherwise the sequence branches at the page boundary below, and `lease.copy`
        says which leading slots it has to copy.

            leaf      |0 . . . . . . . 16 . . . 21|            ready up to 21
            adopted   [=============================-->        writes slot 21 of the same page
            branched  [===============)[16..21 copied -->      writes into a page of its own
        """
        match = self.match(namespace, key)
        root = self.tree.root(namespace, self.policy.of(domain))
        stop = root if match.stop.parent is None else match.stop
        lease = Lease(namespace, root, stop, holder)
        if self._is_adoptable(stop, match):
            stop.owner = lease
        else:
            lease.node = self._branch_point(lease, stop, match.ready)
        lease.written = match.ready
        lease.node.leases += 1
        self._hold(lease.node)
        self._walk_in(lease, now)
        self.leases.add(lease)
        return lease

    def promise(self, lease: Lease, key: bytes) -> None:
        """Name the rest of `key` in the tree as being made by this lease.

        Where somebody else has promised the same tokens they stay unnamed; what the lease writes
        there is its own until the other is done. Where the tokens became ready since the lease
        began, `lease.written` moves on to their end. So not while the lease's own step runs.
        """
        if lease.apart:
            return
        end = len(key) // WIDTH
        while lease.node.end < end and self._name(lease, key, end):
            pass

    def grow(self, lease: Lease, positions: int, now: float, *, room: int = 0) -> bool:
        """Give the sequence pages for positions [0, positions), evicting when it must.

        room: further pages to reserve while the pool is not under pressure, so that a growing
        sequence stays contiguous. All or nothing: False, with nothing evicted, when the pages that
        are free or evictable do not suffice.
        """
        table = lease.table
        need = -(-positions // self.page) - table.pages
        if need <= 0:
            return True
        if need > self.available(lease.root.share):
            return False
        if need > self.pool.free:
            self._evict(need - self.pool.free, now, lease.holder, lease.root.share)
        if self.pool.free - need - room >= self.pool.pages // 8:
            need += room
        after = table.page(table.pages - 1) if table.pages else None
        table.extend(self.pool.take(need, after=after, room=room))
        return True

    def copy_of(self, lease: Lease) -> tuple[int, int, int]:
        """The copy a branch must carry out before it reads: (source slot, target slot, count)."""
        copy = lease.copy
        assert copy is not None
        target = lease.table.page(lease.shared) * self.page
        return copy.page * self.page, target, copy.count

    def copied(self, lease: Lease) -> None:
        """The copy was carried out; its source is no longer held."""
        if lease.copy is not None:
            source, lease.copy = lease.copy.source, None
            self._drop_pin(source)

    def forgo_copy(self, lease: Lease) -> None:
        """Compute the shared leading slots instead of copying them.

        For when the pool cannot hold the source and the target at once.
        """
        if lease.copy is not None:
            lease.written -= lease.copy.count
            self.copied(lease)

    def commit(self, lease: Lease, key: bytes, written: int, now: float) -> None:
        """The KV of key[:written] is written: publish it, to the token.

        Only what was really written may be named here: from this call on others read it. Pages
        that turn out to be in the tree already, made by somebody else, are swapped for the tree's.
        Of a lease that is kept apart nothing is named.
        """
        lease.written = written
        if lease.apart:
            return
        if lease.copy is not None:  # the last slots were counted on and not copied yet
            written = min(written, lease.shared * self.page)
        while True:
            node = self._filling(lease)
            if node is not None:
                if node.start + node.ready >= written:
                    return
                self._fill(lease, node, min(written, node.end), now)
            elif lease.node.end >= written or not self._name(lease, key, written):
                return

    def release(self, lease: Lease, now: float) -> None:
        """Give up the lease. Published KV stays; promises fall; calling it again does nothing."""
        if lease.released:
            return
        lease.released = True
        for node in self._path(lease):
            node.last_use = now  # it was in use until now
        self.leases.discard(lease)
        self.copied(lease)
        self.pool.give(lease.table.cut(lease.shared))
        promised: list[Node] = []
        node = lease.node
        while node.owner is lease and node.parent is not None:
            node.owner = None
            promised.append(node)
            node = node.parent
        lease.node.leases -= 1
        self._unhold(lease.node)
        for node in promised:
            self._abandon(node)
        self._tidy(lease.root)

    def hand_over(self, lease: Lease) -> Runs:
        """Part the lease from its private pages because a transfer still writes to them.

        They come back to the pool with `take_back`, when the transfer has ended, and not before.
        """
        runs = lease.table.cut(lease.shared)
        self.in_io += runs.pages
        return runs

    def take_back(self, runs: Runs) -> None:
        """A transfer that outlived its lease has ended."""
        self.in_io -= runs.pages
        self.pool.give(runs)

    # Leasing

    @staticmethod
    def _is_adoptable(node: Node, match: Match) -> bool:
        return (
            match.ready == node.end
            and node.is_ready
            and node.owner is None
            and node.held == 0
            and not node.children
            and node.parent is not None
        )

    def _branch_point(self, lease: Lease, stop: Node, ready: int) -> Node:
        """The node that ends at the last page boundary in [0, ready); splits `stop` to have one."""
        base = ready - ready % self.page
        count = ready - base
        if count == 0 and ready == stop.end:
            return stop
        at = base - stop.start
        above = stop.parent if at == 0 else self._split(stop, at)
        assert above is not None
        if count:
            source = self._add_pin(stop, lease.root, ready)
            lease.copy = PendingCopy(source, stop.runs.page(0), count)
        return above

    def _walk_in(self, lease: Lease, now: float) -> None:
        """Touch the path and read its page table off."""
        path = self._path(lease)
        for node in path:
            node.last_use = now
            node.uses += 1
        for node in reversed(path):
            lease.table.extend(node.runs)
        lease.shared = lease.table.pages
        self.policy.use(path, now)

    @staticmethod
    def _path(lease: Lease) -> list[Node]:
        """The nodes of the path, the last one first."""
        path: list[Node] = []
        node: Node | None = lease.node
        while node is not None:
            path.append(node)
            node = node.parent
        return path

    # Naming tokens in the tree

    def _name(self, lease: Lease, key: bytes, end: int) -> bool:
        """Let the lease's path cover more of key[:end]; False when it cannot, now.

        What is at the end of the path decides:

            it is ours alone                    -> it gets longer
            nothing like our next page          -> a new child
            our next pages, ready               -> step into them, dropping our own copies
            our next pages, ghosts              -> they become ours to fill
            our next pages, promised to others  -> nothing: ours stay private
        """
        node = lease.node
        rest = key[node.end * WIDTH : end * WIDTH]
        if node.owner is lease and node.leases == 1 and not node.children:
            first_page = (node.key(self.page) + rest[: self.page * WIDTH])[: self.page * WIDTH]
            if not self.tree.has_twin(node, first_page):
                if node.length < self.page and node.parent is not None:  # to others: a new child
                    # Who matched all of it may now match only its beginning, as others do.
                    self.listener.less(node)
                    self._tell_shorter_siblings(node, first_page)
                    self._more(lease, node.parent, first_page)
                self.tree.lengthen(node, rest)
                self._more(lease, node, rest)
                return True
            if node.held > 1:
                return False  # its leading slots are being copied; try again when that is done
            node = self._take_back(lease, node)
            rest = key[node.end * WIDTH : end * WIDTH]
        child, common = self.tree.partial(node, rest, 0)
        whole = common - common % self.page
        if child is None or whole == 0:
            if child is None or common < len(rest) // WIDTH:
                return self._add(lease, node, rest)
            if self._covers(child, common):
                return False  # a short tail that somebody else has already
            if common < child.length:
                return self._add(lease, node, rest)
            whole = common  # a short tail that was here before
        if child.ready >= whole:
            self._step_into(lease, child, whole)
            return True
        if child.owner is not None or (child.ready % self.page and child.held):
            return False
        self._revive(lease, child, whole)
        return True

    @staticmethod
    def _covers(child: Node, common: int) -> bool:
        return child.ready >= common or child.owner is not None

    def _take_back(self, lease: Lease, node: Node) -> Node:
        """Make our short last node private again; return its parent, where the path now ends."""
        parent = node.parent
        assert parent is not None
        self._move(lease, parent)
        lease.shared -= node.runs.pages
        self._own(node, -node.runs.pages)
        node.runs, node.ready = Runs(), 0
        self.policy.evict(node)
        parent.live_children -= 1
        self.tree.remove(node)
        self.listener.less(node)
        return parent

    def _add(self, lease: Lease, parent: Node, rest: bytes) -> bool:
        if rest[: self.page * WIDTH] in parent.children:
            return False
        child = self.tree.add(parent, rest)
        self._tell_shorter_siblings(child, child.key(self.page))
        child.owner = lease
        parent.live_children += 1
        self._move(lease, child)
        self._more(lease, parent, rest)
        return True

    def _step_into(self, lease: Lease, child: Node, whole: int) -> None:
        """Go on in pages that are ready already; ours for the same tokens are freed."""
        if whole < child.length:
            child = self._split(child, whole)
        self._move(lease, child)
        self._use_pages_of(lease, child)

    def _revive(self, lease: Lease, child: Node, whole: int) -> None:
        """Promise to fill a ghost again, as far as our tokens are the same."""
        was_live = child.is_live
        if child.ready % self.page:
            self._drop_last_page(child)
        if whole < child.length:
            child = self._split(child, whole)
        child.owner = lease
        if not was_live:
            assert child.parent is not None
            child.parent.live_children += 1
        self.ghosts.recount(child)
        self.listener.less(child)  # who was matched with the ghost may now wait for the promise
        self._move(lease, child)
        self._use_pages_of(lease, child)
        assert child.parent is not None
        self._more(lease, child.parent, child.tokens)

    def _use_pages_of(self, lease: Lease, child: Node) -> None:
        """Put the child's pages into the page table, in place of private ones if there are any."""
        table, shared, pages = lease.table, lease.shared, child.runs.pages
        replaced = table.slice(shared, shared + pages)
        behind = table.slice(shared + pages, table.pages)
        table.cut(shared)
        table.extend(child.runs)
        table.extend(behind)
        self.pool.give(replaced)
        lease.shared = shared + pages
        lease.swaps += 1
        if pages:
            # Nothing below their end may be written any more, nor copied.
            self.copied(lease)
            lease.written = max(lease.written, child.start + child.ready)

    def _move(self, lease: Lease, node: Node) -> None:
        """Let the path end at a child or at the parent of where it ends."""
        before, lease.node = lease.node, node
        self._hold(node)
        node.leases += 1
        before.leases -= 1
        if before.owner is lease and before.is_ready:
            before.owner = None
        self._unhold(before)

    def _tell_shorter_siblings(self, node: Node, first_page: bytes) -> None:
        """A match that ends in a sibling of less than a page may go on in this node instead."""
        assert node.parent is not None
        siblings = node.parent.children
        if len(siblings) == 1:
            return
        for length in range(1, len(first_page) // WIDTH):
            shorter = siblings.get(first_page[: length * WIDTH])
            if shorter is not None and shorter is not node:
                self.listener.less(shorter)

    def _more(self, lease: Lease, node: Node, tokens: bytes) -> None:
        place: Place = lease.namespace if node.parent is None else node
        self.listener.more(place, int.from_bytes(tokens[:WIDTH], "little"))

    # Publishing

    @staticmethod
    def _filling(lease: Lease) -> Node | None:
        """The first node of the path that the lease still has to fill."""
        found: Node | None = None
        node: Node | None = lease.node
        while node is not None and node.owner is lease:
            if not node.is_ready:
                found = node
            node = node.parent
        return found

    def _fill(self, lease: Lease, node: Node, to: int, now: float) -> None:
        """Positions up to `to` of a node are ready; pages that begin there become the node's."""
        node.ready = to - node.start
        pages = -(-node.ready // self.page) - node.runs.pages
        if pages:
            node.runs.extend(lease.table.slice(lease.shared, lease.shared + pages))
        lease.shared += pages
        self._own(node, pages)
        self._protect(node, pages)  # the lease holds the path
        node.last_use = now
        if node.is_ready:
            node.gone = None
            if node is not lease.node:
                node.owner = None
        self.policy.insert(node, now)
        self.listener.grown(node)

    def _abandon(self, node: Node) -> None:
        """The owner of an unfinished node has gone; called for its leaf first."""
        if node.is_ready:
            self._offer(node)
            return
        parent = node.parent
        assert parent is not None
        if node.ready and not self.ghosts.forget(node) and not node.held:
            self._drop_last_page(node)  # shortened it would be a sibling's twin
        self.listener.less(node)
        if node.ready == 0:
            parent.live_children -= 1
            if not node.children and not node.held:
                self.tree.remove(node)
            self._offer(parent)
        self.ghosts.recount(node)
        self._offer(node)
