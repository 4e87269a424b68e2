"""A simulated KV memory that knows what every slot should hold.

The KV of a position is a function of everything up to it. Here a slot holds a digest of exactly
that: the namespace and all tokens up to and including the position. So a wrong page table, a page
used again while somebody reads it, a slot overwritten after it was published and KV of another
namespace all show as a digest that is not the one expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.cache.lease import Lease
from headwater.cache.listener import Place
from headwater.cache.pages import PagePool, Runs
from headwater.cache.tokens import WIDTH, unpack
from headwater.cache.tree import Node

EMPTY = None
"""What a slot holds whose page was handed out and not written yet."""

GARBAGE = -1
"""What a transfer leaves behind in pages that nobody waits for any more."""


class Corrupt(AssertionError):
    """A slot was read, written or published that must not be; the message says which."""


def digests(world: object, key: bytes) -> list[int]:
    """What each position of `key` holds: a chain, so that position p depends on all before it.

    Python's own hash of integers is enough: it is the same in every process, 61 bits wide, and
    nobody here forges collisions.
    """
    value = hash(world)
    chain: list[int] = []
    for token in unpack(key).tolist():
        value = hash((value, token))
        chain.append(value)
    return chain


class WipingPool(PagePool):
    """A page pool whose pages forget their content when they come back."""

    def __init__(self, memory: SlotMemory, pages: int, page: int) -> None:
        super().__init__(pages, page)
        self._memory = memory

    def give(self, runs: Runs) -> None:
        super().give(runs)
        self._memory.wipe(runs)


class SlotMemory:
    """The slots of a page pool, and which of them are published.

    `pool` and the memory itself, as the listener, go into the cache under test: the pool tells when
    a page is free again, the listener what is published.
    """

    def __init__(self, pages: int, page: int) -> None:
        self.page = page
        self.pool = WipingPool(self, pages, page)
        self._held: list[int | None] = [EMPTY] * (pages * page)
        self._published = bytearray(pages * page)

    # What the engine does

    def write(self, lease: Lease, key: bytes, begin: int, end: int) -> None:
        """Compute the KV of positions [begin, end), reading all before them."""
        self.verify(lease, key, begin)
        chain = digests(_world(lease.namespace, lease.root), key[: end * WIDTH])
        for position, slot in zip(range(begin, end), self._slots(lease, begin, end), strict=True):
            self._put(slot, chain[position])

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy `count` slots, which must have been written."""
        for offset in range(count):
            value = self._held[source + offset]
            if value is EMPTY:
                raise Corrupt(f"slot {source + offset} is copied and holds nothing")
            self._put(target + offset, value)

    def scribble(self, runs: Runs) -> None:
        """What a late transfer does to pages it was given: anything at all.

        If one of them belongs to somebody else by now, that shows when it is verified.
        """
        for page in runs:
            if self.pool.is_free(page):
                raise Corrupt(f"page {page} is free while a transfer writes to it")
            self.wipe([page])
            self._held[page * self.page] = GARBAGE

    def wipe(self, pages: Iterable[int]) -> None:
        """These pages belong to nobody: what was in them must not be read again."""
        for page in pages:
            begin, end = page * self.page, (page + 1) * self.page
            self._held[begin:end] = [EMPTY] * self.page
            self._published[begin:end] = bytes(self.page)

    # What must hold

    def verify(self, lease: Lease, key: bytes, upto: int) -> None:
        """Every position below `upto`, read through the lease's page table, is the right one."""
        if upto > len(key) // WIDTH:
            raise Corrupt(f"{upto} positions are claimed of a sequence of {len(key) // WIDTH}")
        chain = digests(_world(lease.namespace, lease.root), key[: upto * WIDTH])
        slots = list(self._slots(lease, 0, upto))
        if len(slots) < upto:
            raise Corrupt(f"a lease claims {upto} positions and has pages for {len(slots)}")
        self._compare(slots, chain, "a lease")

    def verify_path(self, namespace: bytes, node: Node) -> None:
        """Everything that is ready from the root down to the end of a node is the right KV."""
        path = [node]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        path.reverse()
        chain = digests(_world(namespace, path[0]), b"".join(part.tokens for part in path))
        for part in path:
            self._compare(self._ready_slots(part), chain[part.start : part.end], repr(part))

    def verify_tree(self, namespace: bytes, root: Node) -> None:
        """All KV that a match could lead to is the right one, and marked as published."""
        todo = [(root, hash(_world(namespace, root)))]
        while todo:
            node, value = todo.pop()
            chain = []
            for token in unpack(node.tokens).tolist():
                value = hash((value, token))
                chain.append(value)
            slots = list(self._ready_slots(node))
            self._compare(slots, chain, repr(node))
            if not all(self._published[slot] for slot in slots):
                raise Corrupt(f"{node} has slots that nobody announced")
            todo.extend((child, value) for child in node.children.values() if child.ready)

    # What the cache tells (its listener)

    def grown(self, node: Node) -> None:
        for slot in self._ready_slots(node):
            if self._held[slot] is EMPTY:
                raise Corrupt(f"slot {slot} of {node} is published and was never written")
            self._published[slot] = 1

    def more(self, place: Place, token: int) -> None:
        pass

    def less(self, node: Node) -> None:
        pass

    def _put(self, slot: int, value: int) -> None:
        if self._published[slot]:
            raise Corrupt(f"slot {slot} is published and written again")
        if self.pool.is_free(slot // self.page):
            raise Corrupt(f"slot {slot} is written while its page is free")
        self._held[slot] = value

    def _slots(self, lease: Lease, begin: int, end: int) -> Iterator[int]:
        for first, count in lease.slots(begin, end, self.page):
            yield from range(first, first + count)

    def _ready_slots(self, node: Node) -> Iterator[int]:
        left = node.ready
        for page in node.runs:
            yield from range(page * self.page, page * self.page + min(left, self.page))
            left -= self.page

    def _compare(self, slots: Iterable[int], chain: list[int], whose: str) -> None:
        for index, slot in enumerate(slots):
            if self._held[slot] != chain[index]:
                what = "nothing" if self._held[slot] is EMPTY else "other KV"
                raise Corrupt(f"token {index} of {whose} is in slot {slot}, which has {what}")


def _world(namespace: bytes, root: Node) -> tuple[bytes, int]:
    """What else KV depends on. A namespace that was forgotten and came back has another root:
    what was written below the old one must not be met again, though the name is the same."""
    return namespace, id(root)
