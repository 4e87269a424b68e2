"""Pages of KV slots: runs of them, and the pool they come from.

The pool hands out *extents*, not single pages, because attention reads one long run in place but
must gather many short ones (a gather costs half as much again as a contiguous read; page by page
it is ten times slower). So it prefers to continue where a sequence ended, and takes the smallest
extent that leaves the sequence room to grow.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList

Extent = tuple[int, int]
"""(first page, number of pages)"""


class Runs:
    """An ordered list of pages, kept as maximal extents.

    Page i of the list holds the token slots [i * page, (i + 1) * page) of whoever owns the list.
    """

    __slots__ = ("extents", "pages")

    def __init__(self, extents: list[Extent] | None = None) -> None:
        self.extents: list[Extent] = extents if extents is not None else []
        self.pages = sum(count for _, count in self.extents)

    def __len__(self) -> int:
        return self.pages

    def __iter__(self) -> Iterator[int]:
        for first, count in self.extents:
            yield from range(first, first + count)

    def __repr__(self) -> str:
        return f"Runs({self.extents})"

    def append(self, first: int, count: int) -> None:
        """Add an extent at the end, joining it to the last one where they touch."""
        extents = self.extents
        if extents:
            last_first, last_count = extents[-1]
            if last_first + last_count == first:
                extents[-1] = (last_first, last_count + count)
                self.pages += count
                return
        extents.append((first, count))
        self.pages += count

    def extend(self, other: Runs) -> None:
        """Add all extents of another list at the end."""
        for first, count in other.extents:
            self.append(first, count)

    def slice(self, begin: int, end: int) -> Runs:
        """Pages [begin, end) as a new list."""
        out = Runs()
        if begin + 1 == self.pages == end:  # the last page: what a growing sequence publishes
            first, count = self.extents[-1]
            out.append(first + count - 1, 1)
            return out
        at = 0
        for first, count in self.extents:
            low, high = max(begin - at, 0), min(end - at, count)
            if low < high:
                out.append(first + low, high - low)
            at += count
            if at >= end:
                break
        return out

    def cut(self, keep: int) -> Runs:
        """Keep the first `keep` pages; return the rest."""
        extents = self.extents
        rest: list[Extent] = []
        while self.pages > keep:
            first, count = extents.pop()
            surplus = min(count, self.pages - keep)
            if surplus < count:
                extents.append((first, count - surplus))
            rest.append((first + count - surplus, surplus))
            self.pages -= surplus
        rest.reverse()
        return Runs(rest)

    def page(self, index: int) -> int:
        """The page at `index`; the end is found first, because that is where sequences write."""
        if not 0 <= index < self.pages:
            raise IndexError(f"page {index} of {self.pages}")
        extents = self.extents
        after = self.pages
        for position in range(len(extents) - 1, -1, -1):
            first, count = extents[position]
            after -= count
            if index >= after:
                return first + index - after
        raise AssertionError("the extents hold fewer pages than are counted")


class PagePool:
    """All pages of a KV pool, free or handed out.

    The pool does not know who holds a page, only that somebody does: freeing a free page and
    handing out a taken one are programming errors and raise.
    """

    def __init__(self, pages: int, page: int = 16) -> None:
        if pages < 1 or page < 1:
            raise ValueError("a pool needs at least one page of at least one slot")
        self.pages = pages
        self.page = page
        self.free = 0
        self._taken = bytearray(b"\x01" * pages)
        self._count_at: dict[int, int] = {}  # first page of a free extent -> its size
        self._first_at: dict[int, int] = {}  # page after a free extent -> its first page
        self._by_size: SortedList[Extent] = SortedList()  # (size, first page)
        self._insert(0, pages)

    def take(self, count: int, *, after: int | None = None, room: int = 0) -> Runs:
        """Hand out `count` pages, which the caller knows to be free.

        after: the page the sequence ends with; its neighbour is taken first when it is free.
        room: how many more pages the sequence is likely to ask for, so that an extent is chosen
        in which it can continue.
        Raises MemoryError when fewer are free; nothing has changed then.
        """
        if count > self.free:
            raise MemoryError(f"{count} pages asked for, {self.free} free")
        out = Runs()
        if count and after is not None and after + 1 in self._count_at:
            out.append(*self._carve(after + 1, count))
        while out.pages < count:
            first = self._fitting(count - out.pages, room)
            out.append(*self._carve(first, count - out.pages))
        return out

    def give(self, runs: Runs) -> None:
        """Take pages back."""
        for first, count in runs.extents:
            self._insert(first, count)

    def is_free(self, page: int) -> bool:
        return not self._taken[page]

    def free_extents(self) -> list[Extent]:
        """All free extents in page order."""
        return sorted(self._count_at.items())

    def _fitting(self, count: int, room: int) -> int:
        """First page of the smallest free extent of count + room pages, or of the largest."""
        by_size = self._by_size
        at = by_size.bisect_left((count + room, -1))
        if at == len(by_size) and room:
            at = by_size.bisect_left((count, -1))
        size_and_first = by_size[at] if at < len(by_size) else by_size[-1]
        return int(size_and_first[1])

    def _carve(self, first: int, wanted: int) -> Extent:
        size = self._count_at[first]
        count = min(size, wanted)
        self._remove(first, size)
        if count < size:
            self._add(first + count, size - count)
        self._taken[first : first + count] = b"\x01" * count
        self.free -= count
        return first, count

    def _insert(self, first: int, count: int) -> None:
        if first < 0 or first + count > self.pages:
            raise RuntimeError(f"pages {first} to {first + count - 1} are not of this pool")
        if self._taken.find(0, first, first + count) != -1:
            raise RuntimeError(f"pages {first} to {first + count - 1} are freed twice")
        self._taken[first : first + count] = bytes(count)
        self.free += count
        before = self._first_at.get(first)
        if before is not None:
            self._remove(before, first - before)
            first, count = before, count + first - before
        behind = self._count_at.get(first + count)
        if behind is not None:
            self._remove(first + count, behind)
            count += behind
        self._add(first, count)

    def _add(self, first: int, count: int) -> None:
        self._count_at[first] = count
        self._first_at[first + count] = first
        self._by_size.add((count, first))

    def _remove(self, first: int, count: int) -> None:
        del self._count_at[first]
        del self._first_at[first + count]
        self._by_size.remove((count, first))
