"""Waiting sequences in the order in which they will be admitted.

    started, by arrival  |  by priority:  overdue, by arrival  |  the rest, by the chosen order

Sequences that have already run (preempted ones, further choices of a prompt) come first, because
they hold up answers that have begun.
"""

from __future__ import annotations

from typing import Any, Protocol

from sortedcontainers import SortedList

from headwater.schedule.order import RANKS, Order, Rank
from headwater.schedule.sequence import Sequence


class Line(Protocol):
    """A queue with a rank. A sequence whose rank may have changed is put in again."""

    def put(self, sequence: Sequence) -> None: ...

    def drop(self, sequence: Sequence) -> None: ...

    def first(self, work: int) -> Sequence | None:
        """Who is next, when the engine has computed `work` prompt tokens so far."""


Place = tuple[Any, ...]


def _place(sequence: Sequence, rank: Rank, work: int) -> Place:
    """Where a sequence stands: no two are equal, since choices of a request arrive together."""
    which = (sequence.arrival, sequence.choice)
    if sequence.started:
        return (0, *which)
    priority = -sequence.request.priority
    if sequence.overdue:
        return (1, priority, 0, *which)
    return (1, priority, 1, rank(sequence, work), *which)


class SortedLine:
    """For ranks that change only with their sequence."""

    def __init__(self, order: Order) -> None:
        self._rank = RANKS[order]
        self._line: SortedList[tuple[Place, Sequence]] = SortedList()
        self._place: dict[Sequence, tuple[Place, Sequence]] = {}

    def put(self, sequence: Sequence) -> None:
        self.drop(sequence)
        place = self._place[sequence] = (_place(sequence, self._rank, 0), sequence)
        self._line.add(place)

    def drop(self, sequence: Sequence) -> None:
        place = self._place.pop(sequence, None)
        if place is not None:
            self._line.remove(place)

    def first(self, work: int) -> Sequence | None:
        return self._line[0][1] if self._line else None


class ScannedLine:
    """For ranks that change with every step."""

    def __init__(self, order: Order) -> None:
        self._rank = RANKS[order]
        self._all: dict[Sequence, None] = {}

    def put(self, sequence: Sequence) -> None:
        self._all[sequence] = None

    def drop(self, sequence: Sequence) -> None:
        self._all.pop(sequence, None)

    def first(self, work: int) -> Sequence | None:
        return min(self._all, key=lambda each: _place(each, self._rank, work), default=None)
