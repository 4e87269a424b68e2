"""From the sequences of a step to rows and segments: the walk of attention over the tree.

    tree                        rows
    root ─ A [0,96) ─┬─ B ...   0  1  2        sequences below B
                     └─ C ...            3  4  sequences below C

Rows come in depth-first order, so that whatever several sequences share serves one slice of them.
A node that nobody else holds is part of its sequence's own tail. Reading a shared run once for all
rows below it is the idea of Hydragen and of cascade attention.

This runs while the device waits, once a step, so it costs a few microseconds a sequence: only nodes
that are shared are walked, and a tail that grew by one token is not built again.
"""

from __future__ import annotations

from headwater.cache.lease import Lease
from headwater.cache.tokens import WIDTH, unpack
from headwater.cache.tree import Node
from headwater.schedule.sequence import Sequence, lease_of
from headwater.schedule.step import Segment, SlotRun


class Layout:
    """Rows and segments of a step, in depth-first order of the tree."""

    def __init__(self, sequences: list[Sequence], page: int, sink: int) -> None:
        """sequences: each with the positions [begin, end) that it computes; `row` is filled in.
        sink: the slot for rows whose KV is there already."""
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.slots: list[int] = []
        self.segments: list[Segment] = []
        self._page = page
        self._sink = sink
        self._tails: list[Segment] = []
        self._visit(_Branches(sequences))
        self.segments += self._tails

    def _visit(self, branches: _Branches) -> None:
        """Depth first, without recursion: paths can be longer than Python's stack."""
        stack: list[tuple[Node, int | None]] = [(root, None) for root in branches.roots]
        while stack:
            node, first_row = stack.pop()
            if first_row is not None:
                self._leave(node, first_row, branches)
                continue
            stack.append((node, len(self.tokens)))
            if node in branches.here:
                self._add_rows(branches.here[node])
            stack.extend((kid, None) for kid in branches.kids[node])

    def _leave(self, node: Node, first_row: int, branches: _Branches) -> None:
        """All rows below `node` are placed: its KV is read by rows [first_row, now)."""
        if node.length == 0:
            return
        page, kids = self._page, branches.kids[node]
        runs = tuple(SlotRun(first * page, count * page) for first, count in node.runs.extents)
        empty = -node.length % page
        if empty:  # a leaf's last page, into which the leaf's owner may be writing
            runs = (*runs[:-1], SlotRun(runs[-1].first, runs[-1].count - empty))
        index = len(self.segments)
        if len(kids) == 1 and node not in branches.here:  # the same rows read the child
            index = branches.segment[kids[0]]
            runs += self.segments[index].runs
        self.segments[index:] = [Segment(runs, first_row, len(self.tokens), False)]
        branches.segment[node] = index

    def _add_rows(self, here: list[tuple[Sequence, int]]) -> None:
        """The sequences that leave the shared part at one node, each with where its tail begins.

        A row of one position sees its whole tail [tail, end), itself included.
        """
        page, tokens, positions, slots = self._page, self.tokens, self.positions, self.slots
        for sequence, tail in here:
            begin, end, lease = sequence.begin, sequence.end, sequence.lease
            assert lease is not None
            if end - begin > 1:
                self._add_chunk(sequence, lease, tail)
                continue
            row = sequence.row = len(tokens)
            positions.append(begin)
            if sequence.generated and end == sequence.known:
                tokens.append(sequence.last_token)
            else:
                key = sequence.full_key()
                tokens.append(int.from_bytes(key[begin * WIDTH : (begin + 1) * WIDTH], "little"))
            recomputed = begin < lease.written  # cached to its end: runs again for its logits
            if recomputed and tail == end:
                slots.append(self._sink)
                continue
            runs = sequence.tail.until(lease, tail, end, page)
            slots.append(self._sink if recomputed else runs[-1].first + runs[-1].count - 1)
            self._tails.append(Segment(runs, row, row + 1, False))

    def _add_chunk(self, sequence: Sequence, lease: Lease, tail: int) -> None:
        """Several positions:  [tail, begin) seen by all their rows, [begin, end) causally."""
        first = sequence.row = len(self.tokens)
        begin, end = sequence.begin, sequence.end
        self.positions.extend(range(begin, end))
        self.tokens.extend(unpack(sequence.full_key()[begin * WIDTH : end * WIDTH]).tolist())
        own = lease.slots(begin, end, self._page)
        for slot, count in own:
            self.slots.extend(range(slot, slot + count))
        for extents, causal in ((lease.slots(tail, begin, self._page), False), (own, True)):
            if extents:
                runs = tuple(SlotRun(slot, count) for slot, count in extents)
                self._tails.append(Segment(runs, first, len(self.tokens), causal))


class _Branches:
    """The shared part of the tree that the sequences of a step hang on.

    here: the sequences that leave the shared part at a node, each with the position where its own
    tail begins. kids: shared nodes below a node. segment: which segment has a node's KV.
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        self.roots: list[Node] = []
        self.here: dict[Node, list[tuple[Sequence, int]]] = {}
        self.kids: dict[Node, list[Node]] = {}
        self.segment: dict[Node, int] = {}
        for sequence in sequences:
            node = lease_of(sequence).node
            # Up to where somebody else holds on too, or, in a promise, to where KV is.
            while node.parent is not None and (node.held == 1 or node.ready < node.length):
                node = node.parent
            if node in self.here:
                self.here[node].append((sequence, node.end))
                continue
            self.here[node] = [(sequence, node.end)]
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
