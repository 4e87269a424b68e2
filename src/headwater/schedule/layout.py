"""From the sequences of a step to rows and segments: the walk of attention over the tree.

    tree                        rows
    root ─ A [0,96) ─┬─ B ...   0  1  2        sequences below B
                     └─ C ...            3  4  sequences below C

Rows come in depth-first order, so that whatever several sequences share serves one slice of them.
A node that serves one sequence only is part of that sequence's own tail. Reading a shared run once
for all rows below it is the idea of Hydragen and of cascade attention.
"""

from __future__ import annotations

from headwater.cache.tokens import WIDTH, unpack
from headwater.cache.tree import Node
from headwater.schedule.sequence import Sequence
from headwater.schedule.step import Segment, SlotRun


class Entry:
    """Positions [begin, end) of a sequence, computed in one step.

    tail: the position from which on its KV is read by its own rows alone.
    """

    __slots__ = ("begin", "end", "row", "sequence", "tail")

    def __init__(self, sequence: Sequence, begin: int, end: int) -> None:
        self.sequence = sequence
        self.begin = begin
        self.end = end
        self.row = 0
        self.tail = 0

    @property
    def is_recomputed(self) -> bool:
        """A prompt cached to its end: its last token runs again, only for its logits."""
        lease = self.sequence.lease
        return lease is not None and self.begin < lease.written


class Layout:
    """Rows and segments of a step, in depth-first order of the tree."""

    def __init__(self, entries: list[Entry], page: int, sink: int) -> None:
        """entries: what to compute. sink: the slot for rows whose KV is there already."""
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.slots: list[int] = []
        self.segments: list[Segment] = []
        self._page = page
        self._sink = sink
        self._visit(_Branches(entries))
        for entry in entries:
            self._add_tail(entry)

    def _visit(self, branches: _Branches) -> None:
        """Depth first, without recursion: paths can be longer than Python's stack."""
        stack: list[tuple[Node, int | None]] = [(root, None) for root in branches.roots]
        while stack:
            node, first_row = stack.pop()
            if first_row is not None:
                self._leave(node, first_row, branches)
                continue
            stack.append((node, len(self.tokens)))
            for entry in branches.here.get(node, ()):
                entry.tail = node.end
                self._add_rows(entry)
            stack.extend((kid, None) for kid in branches.kids.get(node, ()))

    def _leave(self, node: Node, first_row: int, branches: _Branches) -> None:
        """All rows below `node` are placed: its KV is read by rows [first_row, now)."""
        kids = branches.kids.get(node, [])
        here = branches.here.get(node, [])
        users = branches.users[node] = len(here) + sum(branches.users[kid] for kid in kids)
        if users == 1:
            entry = here[0] if here else branches.only[kids[0]]
            entry.tail = node.start
            branches.only[node] = entry
        elif node.length:
            runs = self._slot_runs(node.runs.extents)
            below = branches.segment.get(kids[0]) if len(kids) == 1 and not here else None
            if below is not None:  # the same rows read the child: one longer run
                runs += self.segments[below].runs
            index = len(self.segments) if below is None else below
            self.segments[index:] = [Segment(runs, first_row, len(self.tokens), False)]
            branches.segment[node] = index

    def _add_rows(self, entry: Entry) -> None:
        sequence, begin, end = entry.sequence, entry.begin, entry.end
        lease = sequence.lease
        assert lease is not None
        entry.row = len(self.tokens)
        self.positions.extend(range(begin, end))
        if end - begin == 1 and end == sequence.known and sequence.generated:
            self.tokens.append(sequence.last_token)
        else:
            key = sequence.full_key()
            self.tokens.extend(unpack(key[begin * WIDTH : end * WIDTH]).tolist())
        if entry.is_recomputed:
            self.slots.append(self._sink)
        else:
            for first, count in lease.slots(begin, end, self._page):
                self.slots.extend(range(first, first + count))

    def _add_tail(self, entry: Entry) -> None:
        """What a sequence reads alone:  [tail ... begin) by all its rows, [begin, end) causally."""
        lease = entry.sequence.lease
        assert lease is not None
        first, last = entry.row, entry.row + entry.end - entry.begin
        if last - first == 1:  # one row sees all of it, itself included
            self._add_segment(
                lease.slots(entry.tail, entry.end, self._page), first, last, causal=False
            )
            return
        self._add_segment(
            lease.slots(entry.tail, entry.begin, self._page), first, last, causal=False
        )
        self._add_segment(lease.slots(entry.begin, entry.end, self._page), first, last, causal=True)

    def _add_segment(
        self, extents: list[tuple[int, int]], first_row: int, end_row: int, *, causal: bool
    ) -> None:
        if extents:
            runs = tuple(SlotRun(first, count) for first, count in extents)
            self.segments.append(Segment(runs, first_row, end_row, causal))

    def _slot_runs(self, extents: list[tuple[int, int]]) -> tuple[SlotRun, ...]:
        page = self._page
        return tuple(SlotRun(first * page, count * page) for first, count in extents)


class _Branches:
    """The part of the tree that the sequences of a step hang on.

    here: sequences whose ready path ends at a node. kids: nodes below it that are needed.
    users, only, segment: filled in on the way up: how many sequences a node serves, the one it
    serves alone, and where its segment is.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self.roots: list[Node] = []
        self.here: dict[Node, list[Entry]] = {}
        self.kids: dict[Node, list[Node]] = {}
        self.users: dict[Node, int] = {}
        self.only: dict[Node, Entry] = {}
        self.segment: dict[Node, int] = {}
        for entry in entries:
            lease = entry.sequence.lease
            assert lease is not None
            node = lease.node
            while not node.is_ready:  # promised: still being written by this very sequence
                assert node.parent is not None
                node = node.parent
            if node in self.here:
                self.here[node].append(entry)
                continue
            self.here[node] = [entry]
            if node not in self.kids:
                self._connect(node)

    def _connect(self, node: Node) -> None:
        """Add the path from a node up to what is known already."""
        self.kids[node] = []
        while node.parent is not None:
            parent = node.parent
            if parent in self.kids:
                self.kids[parent].append(node)
                return
            self.kids[parent] = [node]
            node = parent
        self.roots.append(node)
