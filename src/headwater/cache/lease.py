"""The right to use a path of the tree, and the pages of a sequence that runs on it."""

from __future__ import annotations

from headwater.cache.pages import Runs
from headwater.cache.tree import Node, Owner


class Pin:
    """Positions [0, end) of a path, held for a copy or a transfer that reads them."""

    __slots__ = ("end", "node", "root")

    def __init__(self, node: Node, root: Node, end: int) -> None:
        self.node = node
        self.root = root
        self.end = end


class PendingCopy:
    """Leading slots of a page that a branch shares with a sibling and must copy before it writes.

    The source is pinned until the copy was carried out.
    """

    __slots__ = ("count", "page", "source")

    def __init__(self, source: Pin, page: int, count: int) -> None:
        self.source = source
        self.page = page
        self.count = count


class Lease(Owner):
    """A path, and the page table of the sequence that uses it.

        0                node.end         written            table.pages * page
        |    in the tree   |   private      |   room to grow    |
        [== owned by nodes ==][======== owned by the lease ======]
                            `shared` pages

    `node` is where the path ends; nothing above it is evicted while the lease is held. Positions
    below `written` have KV. The node may be promised: then `written` lies inside it and the pages
    from `shared` on, though they will be the node's, are still the lease's. While the lease is kept
    `apart`, all it writes is its own.
    """

    __slots__ = (
        "apart",
        "copy",
        "holder",
        "namespace",
        "node",
        "released",
        "root",
        "shared",
        "swaps",
        "table",
    )

    def __init__(self, namespace: bytes, root: Node, node: Node, holder: int) -> None:
        self.namespace = namespace
        self.root = root
        self.node = node
        self.holder = holder
        self.table = Runs()
        self.shared = 0
        self.swaps = 0  # how often written pages were replaced by equal ones of the tree
        self.written = 0
        self.copy: PendingCopy | None = None
        self.apart = False  # what it writes is not published
        self.released = False

    def slot(self, position: int, page: int) -> int:
        """The KV slot of a position that has a page."""
        return self.table.page(position // page) * page + position % page

    def slots(self, begin: int, end: int, page: int) -> list[tuple[int, int]]:
        """The slots of positions [begin, end) as (first, count) runs in position order."""
        if begin >= end:
            return []
        first_page, skip = divmod(begin, page)
        out: list[tuple[int, int]] = []
        left = end - begin
        for first, count in self.table.slice(first_page, (end + page - 1) // page).extents:
            size = min(count * page - skip, left)
            out.append((first * page + skip, size))
            left -= size
            skip = 0
        return out
