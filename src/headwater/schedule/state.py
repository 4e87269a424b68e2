"""Everything the state machine knows, and the two ways a sequence leaves the batch."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headwater.cache.lease import Pin
from headwater.cache.pages import PagePool, Runs
from headwater.cache.policies import Policy
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.shares import Shares
from headwater.cache.tree import Match
from headwater.schedule.account import Account
from headwater.schedule.events import Action, Finish, FinishReason, WeightsReplaced
from headwater.schedule.ladder import Ladder
from headwater.schedule.sequence import Sequence, lease_of
from headwater.schedule.settings import Settings
from headwater.schedule.step import Step
from headwater.schedule.waiting import WaitingRoom

NamespaceOf = Callable[[str, str, str], bytes]
"""(epoch of the weights, sharing domain, salt) -> namespace"""


class Live:
    """An unfinished request: its sequences so far, and how many choices are still to finish.

    The choices of a prompt share one sequence until its first token is drawn.
    """

    __slots__ = ("left", "sequences")

    def __init__(self, sequence: Sequence) -> None:
        self.sequences = [sequence]
        self.left = sequence.request.choices


class Flight:
    """The step that is running: who computes in it, and whom each of its samples feeds."""

    __slots__ = ("fed", "sequences", "step")

    def __init__(self, step: Step, sequences: list[Sequence], fed: list[Sequence]) -> None:
        self.step = step
        self.sequences = sequences
        self.fed = fed


class Load:
    """A transfer into pages of a sequence, or into pages nobody waits for any more."""

    __slots__ = ("begin", "end", "guard", "orphaned", "sequence", "tier")

    def __init__(self, sequence: Sequence, tier: str, begin: int, end: int) -> None:
        self.sequence = sequence
        self.tier = tier
        self.begin = begin
        self.end = end
        self.orphaned: Runs | None = None
        self.guard: Pin | None = None  # of the page of the tree into which it writes first


class Hold:
    """A prefix that is kept for a while, and what it costs its domain."""

    __slots__ = ("domain", "pages", "pin", "until")

    def __init__(self, pin: Pin, domain: str, pages: int, until: float) -> None:
        self.pin = pin
        self.domain = domain
        self.pages = pages
        self.until = until


class State:
    """The machine's memory. Only the functions of this package change it."""

    def __init__(
        self,
        pool: PagePool,
        policy: Policy | Shares,
        namespace_of: NamespaceOf,
        ladder: Ladder,
        epoch: str,
        settings: Settings,
        cache_class: type[PrefixCache] = PrefixCache,
    ) -> None:
        self.settings = settings
        self.waiting = WaitingRoom(settings.order, settings.patience)
        self.cache = cache_class(pool, policy, listener=self.waiting)
        self.namespace_of = namespace_of
        self.ladder = ladder
        self.epoch = epoch
        self.sink = pool.pages * pool.page  # the slot behind the pool
        self.running: dict[Sequence, None] = {}
        self.loads: dict[int, Load] = {}
        self.stores: dict[int, Pin] = {}
        self.holds: dict[int, Hold] = {}
        self.namespaces: dict[str, dict[bytes, None]] = {}  # of each domain, those with a tree
        self.live: dict[int, Live] = {}
        self.flight: Flight | None = None
        self.swap: WeightsReplaced | None = None
        self.actions: list[Action] = []
        self.work = 0  # prompt tokens computed, ever
        self.arrivals = 0
        self.ids = 0

    @property
    def loading(self) -> int:
        """Sequences that wait for a load; nobody waits for one that was cancelled."""
        return sum(load.orphaned is None for load in self.loads.values())

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    def match(self, sequence: Sequence) -> Match:
        key = sequence.full_key() if sequence.request.reads else b""
        return self.cache.match(sequence.namespace, key)

    def know(self, namespace: bytes, domain: str) -> None:
        """Remember whose a namespace is, for as long as anything is kept under it."""
        known = self.namespaces.setdefault(domain, {})
        if namespace in known:
            return
        known[namespace] = None
        roots = self.cache.tree.roots
        if sum(map(len, self.namespaces.values())) > 2 * (len(roots) + len(self.live)) + 64:
            for name, spaces in list(self.namespaces.items()):
                left = {each: None for each in spaces if each in roots or each == namespace}
                if left:
                    self.namespaces[name] = left
                else:
                    del self.namespaces[name]

    def in_flight(self, sequence: Sequence) -> bool:
        return self.flight is not None and sequence in self.flight.sequences


def take_off(state: State, sequence: Sequence, now: float) -> None:
    """End a sequence's use of the device; all KV it has written stays cached, if it may."""
    lease = lease_of(sequence)
    lease.apart = not sequence.request.stores
    sequence.rewrites = max(sequence.rewrites, lease.written)
    state.cache.commit(lease, sequence.full_key(), lease.written, now)
    state.cache.release(lease, now)
    state.waiting.fallen(lease, now)
    sequence.lease = None
    state.running.pop(sequence, None)


def finish(state: State, sequence: Sequence, reason: FinishReason) -> None:
    """Report a sequence as complete, with all choices it still stands for. It holds nothing.

    The account goes with its own choice, once, as it is now.
    """
    request = sequence.request
    live = state.live[request.id]
    live.sequences.remove(sequence)
    sequence.account.generated = sequence.generated
    for choice in sequence.choices():
        live.left -= 1
        own = choice == sequence.choice
        account = msgspec.structs.replace(sequence.account) if own else Account()
        state.actions.append(Finish(request.id, choice, reason, account))
    if live.left == 0:
        del state.live[request.id]
