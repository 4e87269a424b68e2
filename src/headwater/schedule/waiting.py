"""The waiting room: who waits, what each would hit, whose promise it waits for, who is next.

A waiting sequence is matched once. It is matched again only after the place where its match ended
has changed, which the cache tells (`more`, `less`). Sequences hold nothing here: no lease, no
pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from sortedcontainers import SortedList

from headwater.cache.listener import Place
from headwater.cache.tokens import WIDTH
from headwater.cache.tree import Match, Node, Owner
from headwater.schedule.line import Line, ScannedLine, SortedLine
from headwater.schedule.order import RESTLESS, USE_MATCH, Order
from headwater.schedule.sequence import Sequence

Matcher = Callable[[Sequence], Match]


class WaitingRoom:
    """Sequences that are not running. Listens to the cache."""

    def __init__(self, order: Order, patience: int) -> None:
        self._line: Line = ScannedLine(order) if order in RESTLESS else SortedLine(order)
        self._ranks_by_match = order in USE_MATCH
        self._patience = patience
        self._admissions = 0
        self._deadlines: SortedList[tuple[int, int, int, Sequence]] = SortedList()
        self._all: dict[Sequence, None] = {}  # in order of arrival into the room
        self._stale: dict[Sequence, None] = {}
        self._behind: dict[tuple[Place, int], set[Sequence]] = {}
        self._at: dict[Node, set[Sequence]] = {}
        self._followers: dict[Owner, list[tuple[int, Sequence]]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._all)

    def add(self, sequence: Sequence, now: float) -> None:
        sequence.waiting_since = now
        sequence.match = None
        sequence.deadline = self._admissions + len(self._all) + self._patience
        self._deadlines.add(_deadline(sequence))
        self._all[sequence] = None
        self._stale[sequence] = None
        if not self._ranks_by_match:
            self._line.put(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take it out; it is not waiting any more."""
        self._unwatch(sequence)
        self._unfollow(sequence)
        self._line.drop(sequence)
        self._deadlines.discard(_deadline(sequence))
        self._stale.pop(sequence, None)
        del self._all[sequence]

    def rematch_all(self) -> None:
        """Nothing that was matched holds any more."""
        self._stale |= self._all

    # Who is next

    def next(self, matcher: Matcher, work: int) -> Sequence | None:
        """The sequence to admit now, with its match up to date; None when all wait for promises.

        work: prompt tokens the engine has computed so far, the clock of the response ratio.
        """
        self._mark_overdue()
        if self._ranks_by_match:
            for sequence in list(self._stale):
                if sequence.maker is None:
                    self._rematch(sequence, matcher)
                    self._line.put(sequence)
        first = self._line.first(work)
        if first is not None and (first in self._stale or _is_promised_more(first)):
            self._rematch(first, matcher)
        return first

    def admitted(self) -> None:
        """Somebody has left the room for the batch."""
        self._admissions += 1

    def _mark_overdue(self) -> None:
        """Who is `patience` places behind its turn under first come, first served, is next.

        Its turn would have been after all who waited when it came.
        """
        while self._deadlines and self._deadlines[0][0] <= self._admissions:
            sequence = self._deadlines.pop(0)[-1]
            sequence.overdue = True
            is_in_line = sequence not in self._stale or not self._ranks_by_match
            if sequence.maker is None and is_in_line:
                self._line.put(sequence)

    # Waiting for somebody else's KV

    def follow(self, sequence: Sequence, match: Match, now: float) -> None:
        """Wait until the maker of a promise has written as far as this prompt goes with it."""
        assert match.maker is not None
        sequence.maker = match.maker
        sequence.follows_since = now
        self._line.drop(sequence)
        self._followers.setdefault(match.maker, []).append((match.promised, sequence))

    def next_branch(self, maker: Owner, begin: int, end: int) -> int:
        """Where the maker's chunk [begin, end) should be cut so that a follower can start."""
        for position, _ in self._followers.get(maker, ()):
            if begin < position < end:
                end = position
        return end

    def reached(self, maker: Owner, now: float) -> None:
        """The maker has written more: let those go that waited for no more than that."""
        followers = self._followers.get(maker)
        if followers is None:
            return
        for position, sequence in followers:
            if position <= maker.written:
                self._wake(sequence, now)
        left = [(position, s) for position, s in followers if position > maker.written]
        if left:
            self._followers[maker] = left
        else:
            del self._followers[maker]

    def fallen(self, maker: Owner, now: float) -> None:
        """The maker has gone. The next of its followers to be admitted promises anew."""
        for _, sequence in self._followers.pop(maker, ()):
            self._wake(sequence, now)

    def _wake(self, sequence: Sequence, now: float) -> None:
        sequence.maker = None
        sequence.followed += now - sequence.follows_since
        self._stale[sequence] = None
        if not self._ranks_by_match:
            self._line.put(sequence)

    def _unfollow(self, sequence: Sequence) -> None:
        if sequence.maker is None:
            return
        followers = [f for f in self._followers[sequence.maker] if f[1] is not sequence]
        if followers:
            self._followers[sequence.maker] = followers
        else:
            del self._followers[sequence.maker]
        sequence.maker = None

    # Matches and the places they depend on

    def more(self, place: Place, token: int) -> None:
        for sequence in self._behind.get((place, token), ()):
            self._stale[sequence] = None

    def grown(self, node: Node) -> None:
        """Followers are woken by position, when their maker commits; for others nothing changed."""

    def less(self, node: Node) -> None:
        for sequence in self._at.get(node, ()):
            self._stale[sequence] = None

    def _rematch(self, sequence: Sequence, matcher: Matcher) -> None:
        self._stale.pop(sequence, None)
        self._unwatch(sequence)
        match = sequence.match = matcher(sequence)
        at = match.node.end * WIDTH
        if at < len(sequence.key):
            place: Place = sequence.namespace if match.node.parent is None else match.node
            token = int.from_bytes(sequence.key[at : at + WIDTH], "little")
            sequence.behind = (place, token)
            self._behind.setdefault(sequence.behind, set()).add(sequence)
        for node in match.places:
            sequence.at.append(node)
            self._at.setdefault(node, set()).add(sequence)

    def _unwatch(self, sequence: Sequence) -> None:
        if sequence.behind is not None:
            _discard(self._behind, sequence.behind, sequence)
            sequence.behind = None
        for node in sequence.at:
            _discard(self._at, node, sequence)
        sequence.at.clear()


def _is_promised_more(sequence: Sequence) -> bool:
    """Its match counts on a promise. That is kept or broken without notice, and to wait for a maker
    that has gone would be for ever: so it is looked at again before anything follows from it."""
    match = sequence.match
    return match is not None and match.promised > match.ready


def _deadline(sequence: Sequence) -> tuple[int, int, int, Sequence]:
    return (sequence.deadline, sequence.arrival, sequence.choice, sequence)


K = TypeVar("K")


def _discard(table: dict[K, set[Sequence]], place: K, sequence: Sequence) -> None:
    watchers = table.get(place)
    if watchers is not None:
        watchers.discard(sequence)
        if not watchers:
            del table[place]
