"""A fake engine: it executes steps on a simulated KV memory and believes nothing.

The KV of a position is a function of the weights and of all tokens up to it, and a slot here holds
a digest of exactly that. Attention over the wrong slots is then a digest that does not follow from
the one before it: a wrong page table, a run left out or read twice, a wrong causal flag, a copy
that did not happen, a page read after it was freed. And what is sampled is a function of the tokens
so far, so that a request's answer is the same whatever ran beside it.

    row at position p reads    [0 .................. p - 1]  [p]
                               digests d0 ... d(p-1)         its own, hash(d(p-1), token)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headwater.cache.listener import Listener, Place
from headwater.cache.pages import PagePool
from headwater.cache.policies import Policy
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.tokens import unpack
from headwater.cache.tree import Node
from headwater.schedule.events import Request
from headwater.schedule.state import NamespaceOf
from headwater.schedule.step import Segment, SlotRun, Step
from headwater.testing.slots import EMPTY, GARBAGE, Corrupt, SlotMemory


def slots_of(runs: Iterable[SlotRun]) -> list[int]:
    """The slots of some runs, one by one."""
    return [slot for run in runs for slot in range(run.first, run.first + run.count)]


class EngineMemory(SlotMemory):
    """The slots as an engine has them: addressed by number, with the sink behind the last page.

    Each slot also remembers the namespace it was first used for, since digests are the same in all.
    """

    def __init__(self, pages: int, page: int) -> None:
        super().__init__(pages, page)
        self.sink = pages * page
        self._namespaces: list[bytes | None] = [None] * self.sink

    def get(self, slot: int) -> int:
        """What a slot holds, which must be KV in a page of somebody's."""
        if not 0 <= slot < self.sink:
            raise Corrupt(f"slot {slot} is read and is not in the pool")
        value = self._held[slot]
        if value is EMPTY or value == GARBAGE:
            raise Corrupt(f"slot {slot} is read and was not written")
        if self.pool.is_free(slot // self.page):
            raise Corrupt(f"slot {slot} is read while its page is free")
        return value

    def put(self, slot: int, value: int) -> None:
        """Write a slot that is not published. What goes to the sink is gone.

        It may hold something: an answer that has ended without publishing its last tokens leaves
        them in a page that goes on to somebody else.
        """
        if slot != self.sink:
            self._put(slot, value)

    def copy(self, source: int, target: int, count: int) -> None:
        for offset in range(count):
            self.put(target + offset, self.get(source + offset))
            self._namespaces[target + offset] = self._namespaces[source + offset]

    def spoil(self, slot: int) -> None:
        """What a transfer that ends badly leaves behind, in pages that are still its own."""
        if self.pool.is_free(slot // self.page):
            raise Corrupt(f"a transfer writes slot {slot} while its page is free")
        self._put(slot, GARBAGE)

    def wipe(self, pages: Iterable[int]) -> None:
        for page in pages:
            super().wipe([page])
            begin, end = page * self.page, (page + 1) * self.page
            self._namespaces[begin:end] = [None] * self.page

    def belong(self, slots: Iterable[int], namespace: bytes) -> None:
        """These slots are used for a namespace; none of them may have been for another."""
        for slot in slots:
            other = self._namespaces[slot]
            if other is None:
                self._namespaces[slot] = namespace
            elif other != namespace:
                raise Corrupt(f"slot {slot} of {other!r} is used for {namespace!r}")


class Both:
    """Two listeners as one."""

    def __init__(self, first: Listener, second: Listener) -> None:
        self._listeners = (first, second)

    def more(self, place: Place, token: int) -> None:
        for listener in self._listeners:
            listener.more(place, token)

    def grown(self, node: Node) -> None:
        for listener in self._listeners:
            listener.grown(node)

    def less(self, node: Node) -> None:
        for listener in self._listeners:
            listener.less(node)


def watched(watcher: Listener, limit: int | None = None) -> type[PrefixCache]:
    """A prefix cache that tells a second listener, too; `limit` is that of its ghost tokens.

    With an `EngineMemory` as the watcher, what is published before it is written shows at once.
    """

    class Watched(PrefixCache):
        def __init__(
            self,
            pool: PagePool,
            policy: Policy,
            *,
            ghost_tokens: int | None = limit,
            listener: Listener | None = None,
        ) -> None:
            both = watcher if listener is None else Both(watcher, listener)
            super().__init__(pool, policy, ghost_tokens=ghost_tokens, listener=both)

    return Watched


class Prefix(NamedTuple):
    """What a digest stands for. `text` is a digest too, of the tokens without the weights."""

    length: int
    before: int
    text: int


class Piece(NamedTuple):
    """KV of positions [begin, end): what it follows from and what it ends with."""

    begin: int
    end: int
    before: int
    last: int


class Drawn(NamedTuple):
    """A sampled token, and whether it completed a stop string."""

    token: int
    stopped: bool


class Language(NamedTuple):
    """What a fake model says: few tokens make answers meet again, many keep them apart.

    One in `stop_every` tokens completes a stop string; with 0 none does.
    """

    vocabulary: int
    stop_every: int = 31


class FakeModel:
    """Executes steps, and answers for every request what it would answer alone."""

    def __init__(
        self, memory: EngineMemory, namespace_of: NamespaceOf, epoch: str, language: Language
    ) -> None:
        self.memory = memory
        self.epoch = epoch
        self._namespace_of = namespace_of
        self._language = language
        self._prefixes: dict[int, Prefix] = {}
        self._requests: dict[int, Request] = {}
        self._texts: dict[tuple[int, int], int] = {}  # of each choice, up to its newest token
        self._root = 0
        self.swap(epoch)

    def swap(self, epoch: str) -> None:
        """Other weights: no KV of the old ones follows from anything any more."""
        self.epoch = epoch
        self._root = hash(epoch)
        self._prefixes[self._root] = Prefix(0, 0, 0)

    def begin(self, request: Request) -> None:
        self._requests[request.id] = request
        text = self._prefixes[self.digests(request.prompt)[-1]].text
        for choice in range(request.choices):
            self._texts[request.id, choice] = text

    def digests(self, key: bytes) -> list[int]:
        """What the slots of a packed prompt should hold."""
        out: list[int] = []
        digest = self._root
        for token in unpack(key).tolist():
            digest = self._extend(digest, token)
            out.append(digest)
        return out

    def namespace(self, request: int) -> bytes:
        """Where the KV of a request belongs under the weights of now."""
        asked = self._requests[request]
        return self._namespace_of(self.epoch, asked.domain, asked.salt)

    def text(self, digest: int) -> int:
        """The digest of the same tokens whatever the weights."""
        return self._prefixes[digest].text

    # A step

    def run(self, step: Step) -> list[int]:
        """Compute all rows; returns the digest of each."""
        self._check_shape(step)
        for copy in step.copies:
            self.memory.copy(copy.source, copy.target, copy.count)
        reads = _Reads(self, step)
        out: list[int] = []
        for row, (token, slot) in enumerate(zip(step.tokens, step.slots, strict=True)):
            position = step.positions[row]
            before, own = reads.of(row, out)
            digest = self._extend(before, token)
            if own is not None and own != digest:
                raise Corrupt(f"row {row} is another token than the cached one it computes again")
            if self._prefixes[digest].length != position + 1:
                raise Corrupt(f"row {row} at position {position} follows from other positions")
            self.memory.put(slot, digest)
            out.append(digest)
        for sample in step.samples:
            reads.belong(sample.row, self.namespace(sample.request))
        return out

    def confirm(self, step: Step, digests: list[int]) -> None:
        """What a step has written is still there when it ends."""
        for slot, digest in zip(step.slots, digests, strict=True):
            if slot != self.memory.sink and self.memory.get(slot) != digest:
                raise Corrupt(f"slot {slot} was written by somebody else during the step")

    def draw(self, step: Step, digests: list[int]) -> list[Drawn]:
        """A token for each sample; each must continue the tokens its choice had so far."""
        out = []
        for sample in step.samples:
            prefix = self._prefixes[digests[sample.row]]
            who = (sample.request, sample.choice)
            if prefix.text != self._texts[who] or prefix.length != sample.position:
                raise Corrupt(f"row {sample.row} is not the end of choice {who}")
            vocabulary, stop_every = self._language
            token = hash((prefix.text, sample.choice)) % vocabulary
            after = hash((prefix.text, token))
            out.append(Drawn(token, stopped=stop_every > 0 and after % stop_every == 0))
            self._texts[who] = after
        return out

    def _extend(self, before: int, token: int) -> int:
        digest = hash((before, token))
        if digest not in self._prefixes:
            length, _, text = self._prefixes[before]
            self._prefixes[digest] = Prefix(length + 1, before, hash((text, token)))
        return digest

    def piece(self, slots: list[int]) -> Piece:
        """Read slots in position order; each must follow from the one before it."""
        first = last = self.memory.get(slots[0])
        for slot in slots[1:]:
            value = self.memory.get(slot)
            if self._prefixes[value].before != last:
                raise Corrupt(f"slot {slot} does not follow from the slot before it in its run")
            last = value
        begin, end = self._prefixes[first].length - 1, self._prefixes[last].length
        return Piece(begin, end, self._prefixes[first].before, last)

    def whole(self, pieces: list[Piece]) -> int:
        """The digest that pieces in any order end with; together they are one prefix."""
        last = self._root
        for piece in sorted(pieces):
            if piece.before != last:
                what = f"[{piece.begin}, {piece.end}) does not follow from what is read before it"
                raise Corrupt(what)
            last = piece.last
        return last

    def before(self, digest: int) -> int:
        return self._prefixes[digest].before

    def _check_shape(self, step: Step) -> None:
        if not len(step.tokens) == len(step.positions) == len(step.slots) > 0:
            raise Corrupt(f"step {step.id} has rows without a token, a position or a slot")
        written = [slot for slot in step.slots if slot != self.memory.sink]
        sources = slots_of(SlotRun(copy.source, copy.count) for copy in step.copies)
        targets = slots_of(SlotRun(copy.target, copy.count) for copy in step.copies)
        changed = written + targets
        if len(set(changed)) < len(changed):
            raise Corrupt(f"step {step.id} writes a slot twice")
        if set(changed) & set(sources):
            raise Corrupt(f"step {step.id} writes a slot that it copies")


class _Reads:
    """What the rows of one step attend to.

    A segment that is not causal is verified once, for all its rows. Of a causal one slot i must be
    the slot of its row i, so that all before a row were verified when those rows were computed.
    """

    def __init__(self, model: FakeModel, step: Step) -> None:
        self._model = model
        self._step = step
        self._slots = [slots_of(segment.runs) for segment in step.segments]
        self._pieces: dict[int, Piece] = {}
        self._belonging: set[tuple[int, bytes]] = set()
        self._serving: list[list[int]] = [[] for _ in step.tokens]
        for index, segment in enumerate(step.segments):
            self._check(index, segment)
            for row in range(segment.row_begin, segment.row_end):
                self._serving[row].append(index)

    def of(self, row: int, digests: list[int]) -> tuple[int, int | None]:
        """(the digest before the row's own, its own if it is cached). Rows are asked in order."""
        model, step = self._model, self._step
        own_slot = step.slots[row]
        pieces: list[Piece] = []
        sees_itself = False
        for index in self._serving[row]:
            segment, slots = step.segments[index], self._slots[index]
            if segment.causal:
                first = segment.row_begin
                sees_itself = True
                if row > first:
                    before = model.before(digests[first])
                    begin, end = step.positions[first], step.positions[row]
                    pieces.append(Piece(begin, end, before, digests[row - 1]))
            elif slots[-1] == own_slot:
                sees_itself = True
                if len(slots) > 1:
                    pieces.append(model.piece(slots[:-1]))
            else:
                if index not in self._pieces:
                    self._pieces[index] = model.piece(slots)
                pieces.append(self._pieces[index])
        last = model.whole(pieces)
        if own_slot == model.memory.sink:
            return model.before(last), last
        if not sees_itself:
            raise Corrupt(f"row {row} does not attend to itself")
        return last, None

    def belong(self, row: int, namespace: bytes) -> None:
        """Everything that a row reads is KV of this namespace."""
        for index in self._serving[row]:
            if (index, namespace) not in self._belonging:
                self._belonging.add((index, namespace))
                self._model.memory.belong(self._slots[index], namespace)

    def _check(self, index: int, segment: Segment) -> None:
        slots, rows = self._slots[index], range(segment.row_begin, segment.row_end)
        if not slots or not rows or rows[-1] >= len(self._step.tokens):
            raise Corrupt(f"segment {index} has no slots or no rows: {segment}")
        if segment.causal and slots != self._step.slots[rows[0] : rows[-1] + 1]:
            raise Corrupt(f"the slots of causal segment {index} are not those of its rows")
