"""One choice of one request, from arrival to finish."""

from __future__ import annotations

from headwater.cache.lease import Lease
from headwater.cache.listener import Place
from headwater.cache.tokens import WIDTH, pack
from headwater.cache.tree import Match, Node, Owner
from headwater.schedule.account import Account
from headwater.schedule.events import Request


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
        "arrived",
        "at",
        "behind",
        "cancelled",
        "choice",
        "generated",
        "key",
        "known",
        "last_token",
        "lease",
        "load",
        "maker",
        "match",
        "namespace",
        "passed",
        "pending",
        "prompt_tokens",
        "request",
        "started",
        "waiting_since",
        "work_at_arrival",
    )

    def __init__(self, request: Request, choice: int, namespace: bytes, arrival: int) -> None:
        self.request = request
        self.choice = choice
        self.namespace = namespace
        self.arrival = arrival  # rank among all arrivals
        self.key = request.prompt  # all known tokens but `pending`, packed
        self.pending: list[int] = []
        self.prompt_tokens = self.known = len(request.prompt) // WIDTH
        self.generated = 0
        self.last_token = -1  # the newest token; meaningful once generated > 0
        self.lease: Lease | None = None
        self.load: int | None = None
        self.match: Match | None = None  # while waiting; None when it must be looked up again
        self.behind: tuple[Place, int] | None = None  # the waiting room's, for its watches
        self.at: list[Node] = []
        self.maker: Owner | None = None  # whose promise it waits for
        self.passed = 0
        self.started = False
        self.cancelled = False
        self.arrived = self.waiting_since = 0.0
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
