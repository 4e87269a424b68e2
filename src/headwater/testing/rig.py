"""A prefix cache under test, with a simulated KV memory behind it and every law watched.

The rig plays the engine: it writes KV between `grow` and `commit`, carries out copies, and lets
transfers outlive their lease. Each of its verbs is one verb of the cache plus what must be true of
it whatever happened before, so a random driver, a shrinking state machine and a test written by
hand share one set of expectations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.cache.check import check, check_idle
from headwater.cache.lease import Lease, Pin
from headwater.cache.pages import Runs
from headwater.cache.policies.policy import Policy
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.shares import Shares
from headwater.cache.tokens import count
from headwater.cache.tree import Match, Node
from headwater.testing import brute
from headwater.testing.notices import Notices
from headwater.testing.slots import SlotMemory


@dataclass(eq=False)
class Sequence:
    """One request: its lease, its tokens so far, and how many of them are in the KV memory.

    0          lease.written       computed         count(key)
    |  committed  |  written, in flight  |  to compute  |
    """

    lease: Lease
    key: bytes
    computed: int

    @property
    def is_in_flight(self) -> bool:
        return self.computed > self.lease.written


@dataclass(eq=False)
class Store:
    """A path that is being stored elsewhere, from the root to the end of what was published."""

    namespace: bytes
    pin: Pin
    end: int


@dataclass(eq=False)
class Watch:
    """A prompt that waits: its whole pages go by eviction only, and its match by notice only."""

    namespace: bytes
    key: bytes
    match: Match
    evicted: int


@dataclass
class Rig:
    """The cache, its memory, and everything that uses them now."""

    memory: SlotMemory
    notices: Notices
    cache: PrefixCache
    now: float = 0.0
    sequences: list[Sequence] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    transfers: list[Runs] = field(default_factory=list)
    watch: Watch | None = None
    _holder: int = 0

    @classmethod
    def of(
        cls, policy: Policy | Shares, *, pages: int, page: int, ghost_tokens: int | None = None
    ) -> Rig:
        memory = SlotMemory(pages, page)
        notices = Notices(memory)
        cache = PrefixCache(memory.pool, policy, ghost_tokens=ghost_tokens, listener=notices)
        return cls(memory, notices, cache)

    # The life of a sequence

    def look(self, namespace: bytes, key: bytes) -> Match:
        """Match, and compare with what the naive model finds."""
        match = self.cache.match(namespace, key)
        ready = brute.longest_ready(self.cache, namespace, key)
        known = brute.longest_known(self.cache, namespace, key)
        assert match.ready == ready, f"{match} where {ready} tokens are ready"
        assert match.known == known, f"{match} where {known} tokens are known"
        assert match.ready <= match.promised <= match.known <= count(key), f"{match} is no order"
        assert (match.maker is None) == (match.promised == match.ready), f"{match} waits for nobody"
        return match

    def begin(self, namespace: bytes, key: bytes) -> Sequence:
        match = self.look(namespace, key)
        self._holder += 1
        domain = domain_of(namespace)
        lease = self.cache.lease(namespace, key, self._tick(), self._holder, domain)
        assert lease.written == match.ready, f"{match.ready} matched, {lease.written} leased"
        to_copy = 0 if lease.copy is None else lease.copy.count
        assert to_copy < self.cache.page, f"a copy of {to_copy} slots, more than a page has"
        assert lease.shared * self.cache.page >= lease.written - to_copy, "less held than matched"
        sequence = Sequence(lease, key, lease.written)
        self.sequences.append(sequence)
        self.verify(sequence)
        return sequence

    def promise(self, sequence: Sequence) -> None:
        """Not while a step is in flight: what it writes would be swapped under its hands."""
        assert not sequence.is_in_flight
        before = sequence.lease.written
        table, swaps = list(sequence.lease.table), sequence.lease.swaps
        self.cache.promise(sequence.lease, sequence.key)
        self._check_swaps(sequence, table, swaps)
        sequence.computed = sequence.lease.written
        assert before <= sequence.computed <= count(sequence.key)
        self.verify(sequence)

    def grow(self, sequence: Sequence, positions: int, room: int = 0) -> bool:
        cache, table = self.cache, sequence.lease.table
        before = list(table)
        free, evicted, cached = cache.pool.free, cache.evicted, cache.cached
        need = max(-(-positions // cache.page) - len(before), 0)
        own = sequence.lease.root.share
        fits = need <= cache.available(own)
        others = {share: share.cached for share in cache.policy if share is not own}
        grown = cache.grow(sequence.lease, positions, self._tick(), room=room)
        for share, had in others.items():
            assert share.cached >= min(had, share.floor), f"{share.name} is pushed below its floor"
        assert grown == fits, f"{need} pages wanted, grow said {grown}"
        assert list(table)[: len(before)] == before, "grow changed what was there"
        if grown:
            assert table.pages * cache.page >= positions
            assert table.pages <= len(before) + need + room
        else:
            same = (free, evicted, cached) == (cache.pool.free, cache.evicted, cache.cached)
            assert same and table.pages == len(before), "a refused grow changed something"
        return grown

    def copy(self, sequence: Sequence) -> None:
        """Carry out the branch's copy, for which there must be a page."""
        if sequence.lease.copy is not None:
            self.memory.copy(*self.cache.copy_of(sequence.lease))
            self.cache.copied(sequence.lease)
        self.verify(sequence)

    def forgo_copy(self, sequence: Sequence) -> None:
        """Compute what would have been copied."""
        assert not sequence.is_in_flight
        self.cache.forgo_copy(sequence.lease)
        sequence.computed = sequence.lease.written
        assert sequence.lease.copy is None
        self.verify(sequence)

    def write(self, sequence: Sequence, to: int) -> None:
        """The engine runs a step that computes up to `to`; it is not committed yet."""
        self.memory.write(sequence.lease, sequence.key, sequence.computed, to)
        sequence.computed = to

    def commit(self, sequence: Sequence) -> None:
        table, swaps = list(sequence.lease.table), sequence.lease.swaps
        self.cache.commit(sequence.lease, sequence.key, sequence.computed, self._tick())
        self._check_swaps(sequence, table, swaps)
        assert sequence.lease.written == sequence.computed
        self.verify(sequence)

    def run(self, sequence: Sequence, to: int, room: int = 0) -> bool:
        """All it takes to have positions [0, to) committed; False when there is no memory.

        Where the pool cannot hold a branch and the page it copies from, it computes instead.
        """
        if not self.grow(sequence, to, room):
            if sequence.lease.copy is None:
                return False
            self.forgo_copy(sequence)
            if not self.grow(sequence, to, room):
                return False
        self.copy(sequence)
        if to > sequence.computed:
            self.write(sequence, to)
        self.commit(sequence)
        return True

    def release(self, sequence: Sequence) -> None:
        self.sequences.remove(sequence)
        self.cache.release(sequence.lease, self._tick())
        self.cache.release(sequence.lease, self.now)  # again: it must not matter

    def abort_in_transfer(self, sequence: Sequence) -> None:
        """Release while a transfer still writes into the private pages."""
        runs = self.cache.hand_over(sequence.lease)
        self.transfers.append(runs)
        self.release(sequence)
        self.memory.scribble(runs)

    def end_transfer(self, index: int) -> None:
        runs = self.transfers.pop(index)
        self.memory.scribble(runs)
        self.cache.take_back(runs)

    # What others do to the cache

    def pin(self, sequence: Sequence) -> None:
        """Start to store what the sequence has published."""
        pin = self.cache.pin(sequence.lease)
        end = _published(pin)
        self.stores.append(Store(sequence.lease.namespace, pin, end))

    def unpin(self, index: int) -> None:
        store = self.stores.pop(index)
        self._verify_store(store)
        self.cache.unpin(store.pin)

    def forget(self, namespace: bytes) -> int:
        free, cached = self.cache.pool.free, self.cache.cached
        freed = self.cache.forget(namespace)
        assert namespace not in self.cache.tree.roots
        assert self.cache.pool.free - free == cached - self.cache.cached == freed
        if self.watch is not None and self.watch.namespace == namespace:
            self.watch = None
        return freed

    def hold(self, namespace: bytes, key: bytes, pages: int) -> None:
        """Keep a prompt, as far as some pages go, as if it were being stored."""
        ready = self.cache.match(namespace, key).ready
        pin = self.cache.hold(namespace, key, pages)
        if pin is None:
            assert ready == 0 or pages == 0
            return
        assert 0 < pin.end <= min(ready, pages * self.cache.page)
        self.stores.append(Store(namespace, pin, pin.end))

    def flush(self, namespace: bytes, key: bytes) -> None:
        """Forget the prompts that begin with `key`; none of them is found when nobody uses one."""
        cached = self.cache.cached
        before = _tokens(self.cache, namespace)
        gone, in_use = self.cache.flush(namespace, key)
        if self.watch is not None and self.watch.namespace == namespace:
            self.watch.evicted = -1  # what it waits for may be gone, but not without a notice
        assert before - _tokens(self.cache, namespace) == gone
        assert (cached > self.cache.cached) == (gone > 0)
        if in_use == 0:
            left = [p for p in brute.ready_paths(self.cache, namespace) if p.startswith(key)]
            assert not left, f"{left} were flushed"

    # What must hold after every one of these

    def follow(self, namespace: bytes, key: bytes) -> None:
        """Watch a prompt from now on, as a waiting request does."""
        match = self.cache.match(namespace, key)
        self.watch = Watch(namespace, key, match, self.cache.evicted)
        self.notices.expect(namespace, key, match)

    def check_watch(self) -> None:
        """The prompt lost no whole page without eviction, and nothing changed without a notice."""
        watch = self.watch
        if watch is None:
            return
        before, now = watch.match, self.cache.match(watch.namespace, watch.key)
        lost = before.ready // self.cache.page - now.ready // self.cache.page
        evicted = self.cache.evicted > watch.evicted
        assert lost <= 0 or evicted, f"{lost} whole pages were lost and nothing was evicted"
        if not self.notices.came:
            same = now.known == before.known
            assert same and now.ready >= before.ready, f"{before} became {now} without a notice"
            told = now.maker in (None, before.maker) or now.ready > before.ready
            assert told, f"{before} became {now}: a promise was made without a notice"
        self.follow(watch.namespace, watch.key)

    def verify(self, sequence: Sequence) -> None:
        """What the sequence would read now is the right KV."""
        lease = sequence.lease
        to_copy = 0 if lease.copy is None else lease.copy.count
        self.memory.verify(lease, sequence.key, sequence.computed - to_copy)

    def verify_all(self) -> None:
        """Everything that anybody could read is the right KV."""
        for sequence in self.sequences:
            self.verify(sequence)
        for store in self.stores:
            self._verify_store(store)
        for namespace, root in self.cache.tree.roots.items():
            self.memory.verify_tree(namespace, root)

    def check(self) -> None:
        check(self.cache)

    def finish(self) -> None:
        """Let go of everything: the cache is at its baseline; forget all: nothing is left."""
        while self.sequences:
            self.release(self.sequences[-1])
        while self.stores:
            self.unpin(0)
        while self.transfers:
            self.end_transfer(0)
        check_idle(self.cache)
        self.verify_all()
        for namespace in list(self.cache.tree.roots):
            self.forget(namespace)
        tree, pool = self.cache.tree, self.cache.pool
        left = (tree.nodes, len(tree.roots), self.cache.ghosts.tokens, pool.pages - pool.free)
        assert left == (0, 0, 0, 0), f"nodes, roots, ghosts, pages left behind: {left}"
        assert pool.free_extents() == [(0, pool.pages)], "the pool did not grow together again"

    def _check_swaps(self, sequence: Sequence, table: list[int], swaps: int) -> None:
        """Who keeps a copy of the page table need not renew it while no swap is counted."""
        lease = sequence.lease
        same = list(lease.table)[: len(table)] == table
        assert same or lease.swaps > swaps, "the page table changed and no swap was counted"

    def _verify_store(self, store: Store) -> None:
        self.memory.verify_path(store.namespace, store.pin.node)
        left = _published(store.pin)
        assert left >= store.end, f"a pinned path shrank from {store.end} to {left} tokens"

    def _tick(self) -> float:
        self.now += 1.0
        return self.now


def _published(pin: Pin) -> int:
    """Where KV ends on a pinned path."""
    node: Node | None = pin.node
    end = pin.node.start + pin.node.ready
    while node is not None:
        if not node.is_ready:
            end = node.start + node.ready
        node = node.parent
    return end


def domain_of(namespace: bytes) -> str:
    """A namespace of the rig is a domain of its own."""
    return namespace.decode("latin-1")


def _tokens(cache: PrefixCache, namespace: bytes) -> int:
    """Tokens with KV in a namespace."""
    root = cache.tree.roots.get(namespace)
    tokens, todo = 0, [] if root is None else [root]
    while todo:
        node = todo.pop()
        tokens += node.ready
        todo.extend(node.children.values())
    return tokens
