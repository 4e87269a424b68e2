"""One choice of one request, from arrival to finish."""

from __future__ import annotations

from headwater.cache.lease import Lease
from headwater.cache.listener import Place
from headwater.cache.tokens import WIDTH, pack
from headwater.cache.tree import Match, Node, Owner
from headwater.schedule.account import Account
from headwater.schedule.events import Request
from headwater.schedule.step import SlotRun


class Tail:
    """The slots a sequence reads alone, [start, end), kept from step to step while it grows."""

    __slots__ = ("_count", "_end", "_first", "_head", "_lease", "_start", "_swaps")

    def __init__(self) -> None:
        self._lease: Lease | None = None
        self._swaps = self._start = self._end = 0
        self._head: tuple[SlotRun, ...] = ()  # all runs but the last
        self._first = self._count = 0  # the last run

    def until(self, lease: Lease, start: int, end: int, page: int) -> tuple[SlotRun, ...]:
        """The slots of [start, end) of the lease, which is not empty, as runs."""
        if (
            end == self._end + 1
            and start == self._start
            and lease is self._lease
            and lease.swaps == self._swaps
        ):
            self._end = end
            slot = lease.slot(end - 1, page) if (end - 1) % page == 0 else None
            if slot is None or slot == self._first + self._count:
                self._count += 1
            else:  # the new page lies elsewhere
                self._head += (SlotRun(self._first, self._count),)
                self._first, self._count = slot, 1
            return (*self._head, SlotRun(self._first, self._count))
        return self._rebuild(lease, start, end, page)

    def _rebuild(self, lease: Lease, start: int, end: int, page: int) -> tuple[SlotRun, ...]:
        runs = tuple(SlotRun(first, count) for first, count in lease.slots(start, end, page))
        self._lease, self._swaps, self._start, self._end = lease, lease.swaps, start, end
        self._head, (self._first, self._count) = runs[:-1], (runs[-1].first, runs[-1].count)
        return runs


class Sequence:
    """The tokens of a choice and how far their KV has come.

        0          prompt                              known
        |  prompt    |  generated                        |
        [== written: KV is there ==][ to compute, >= 1 ]

    There is no prefill phase and no decode phase: in every step the written part catches up with
    the known tokens (vLLM's rule). When it has, a token is sampled and one more is known.
    """

    __slots__ = (
        "account",
        "arrival",
        "at",
        "begin",
        "behind",
        "cancelled",
        "choice",
        "deadline",
        "end",
        "followed",
        "follows_since",
        "generated",
        "key",
        "known",
        "last",
        "last_token",
        "lease",
        "load",
        "maker",
        "match",
        "namespace",
        "overdue",
        "pending",
        "prompt_tokens",
        "request",
        "rewrites",
        "row",
        "started",
        "stops",
        "tail",
        "waiting_since",
        "work_at_arrival",
    )

    def __init__(
        self, request: Request, choice: int, namespace: bytes, arrival: int, context: int
    ) -> None:
        """arrival: its rank among all arrivals. context: tokens the model can attend to."""
        self.request = request
        self.choice = choice
        self.namespace = namespace
        self.arrival = arrival
        self.key = request.prompt  # all known tokens but `pending`, packed
        self.pending: list[int] = []
        self.prompt_tokens = self.known = len(request.prompt) // WIDTH
        self.generated = 0
        # How many tokens it may come to know: a prompt as long as the context still gets one.
        most = max(context, self.prompt_tokens + 1)
        self.last = min(self.prompt_tokens + request.max_tokens, most)
        self.stops = frozenset(request.stop_tokens)
        self.last_token = 0  # the newest token, once one is generated
        self.lease: Lease | None = None
        self.load: int | None = None
        self.match: Match | None = None  # while waiting; None when it must be looked up again
        self.behind: tuple[Place, int] | None = None  # the waiting room's, for its watches
        self.at: list[Node] = []
        self.maker: Owner | None = None  # whose promise it waits for
        self.started = False
        self.deadline = 0  # the waiting room's: after how many admissions it is overdue
        self.overdue = False
        self.begin = self.end = 0  # the positions it computes in the step that runs
        self.row = 0  # the first of its rows there
        self.tail = Tail()
        self.cancelled = False
        self.waiting_since = 0.0
        self.followed = self.follows_since = 0.0  # seconds of waiting for a maker
        self.rewrites = 0  # positions below have been written once, before a preemption
        self.work_at_arrival = 0
        self.account = Account(prompt=self.prompt_tokens)

    @property
    def written(self) -> int:
        return 0 if self.lease is None else self.lease.written

    def choices(self) -> range:
        """The choices it stands for: all of the request's until the first token is drawn."""
        if self.generated == 0 and self.choice == 0:
            return range(self.request.choices)
        return range(self.choice, self.choice + 1)

    def begin_again(self) -> None:
        """Its KV is the old weights': nothing that was counted holds for the answer now."""
        account = self.account
        account.cached = account.loaded = account.computed = 0
        account.miss = account.tier = None
        self.rewrites = 0

    def append(self, token: int) -> None:
        """A token was sampled: it is known, its KV is not there yet."""
        self.pending.append(token)
        self.last_token = token
        self.known += 1
        self.generated += 1

    def full_key(self) -> bytes:
        """All known tokens, packed."""
        if self.pending:
            self.key += pack(self.pending)
            self.pending.clear()
        return self.key

    def __repr__(self) -> str:
        return f"Sequence({self.request.id}.{self.choice}, {self.written}/{self.known})"


def lease_of(sequence: Sequence) -> Lease:
    """The lease of a sequence that has one."""
    assert sequence.lease is not None
    return sequence.lease
