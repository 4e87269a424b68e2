"""The state machine: `handle(event, now) -> actions`.

The live engine turns I/O into events and carries the actions out, in one thread that owns the
machine; the simulator is a heap of events under a virtual clock; a recorded log replays to the
same actions. Nothing here reads a clock, draws a random number, blocks or touches a tensor.

A request's life:

    Arrived -> waiting room -> admitted: lease, promise, pages [-> load] -> steps -> Finish
                   ^  |                                                      |
                   |  waits for a promise                                    |
                   +--------------------------- preempted -------------------+
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.cache.pages import PagePool
from headwater.cache.policies import Policy
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.shares import Shares
from headwater.cache.tokens import WIDTH, count
from headwater.cache.tree import Share
from headwater.schedule import admission, control, stepping, transfers
from headwater.schedule.events import (
    Action,
    Arrived,
    Cancelled,
    Event,
    FlushPrefixes,
    HoldPrefix,
    LetGo,
    LoadDone,
    LoadFailed,
    Reject,
    StepDone,
    StoreDone,
    SwapWeights,
    Wake,
    WeightsReplaced,
)
from headwater.schedule.ladder import Ladder, NoTiers
from headwater.schedule.sequence import Sequence
from headwater.schedule.settings import Settings
from headwater.schedule.state import Live, NamespaceOf, State, finish, take_off


class Counts(NamedTuple):
    """How many sequences are in which state."""

    running: int
    loading: int
    waiting: int


class Machine:
    """Continuous batching over a prefix cache, as a pure function of events."""

    def __init__(
        self,
        pool: PagePool,
        policy: Policy | Shares,
        namespace_of: NamespaceOf,
        settings: Settings,
        *,
        epoch: str = "",
        ladder: Ladder | None = None,
        cache_class: type[PrefixCache] = PrefixCache,
    ) -> None:
        """namespace_of: (epoch, domain, salt) -> namespace; epoch: that of the weights in memory.

        Raises ValueError when a step could not hold one row of every running sequence.
        """
        if settings.step_tokens < settings.running:
            raise ValueError("step_tokens must be at least as large as running")
        self._state = State(
            pool, policy, namespace_of, ladder or NoTiers(), epoch, settings, cache_class
        )

    @property
    def cache(self) -> PrefixCache:
        return self._state.cache

    @property
    def epoch(self) -> str:
        return self._state.epoch

    @property
    def is_idle(self) -> bool:
        """No request is unfinished and no transfer is under way."""
        state = self._state
        return not (state.live or state.loads or state.stores or state.flight or state.swap)

    @property
    def has_transfers(self) -> bool:
        """Loads or stores are under way; their ends are events yet to come."""
        return bool(self._state.loads or self._state.stores)

    @property
    def counts(self) -> Counts:
        state = self._state
        return Counts(len(state.running), state.loading, len(state.waiting))

    @property
    def holds(self) -> int:
        """Prefixes that are kept for a while."""
        return len(self._state.holds)

    @property
    def pools(self) -> Iterator[Share]:
        """The shares of the pool."""
        return iter(self._state.cache.policy)

    def forecast(self, prompt: bytes, domain: str, salt: str) -> control.Forecast:
        """What a prompt would find now. Changes nothing."""
        return control.forecast(self._state, prompt, domain, salt)

    def holds_of(self, domain: str) -> list[control.HoldView]:
        """The prefixes that are kept for a domain."""
        return control.holds_of(self._state, domain)

    def domain_of(self) -> dict[bytes, str]:
        """Whose each namespace is that has a tree."""
        roots = self._state.cache.tree.roots
        return {
            namespace: domain
            for domain, known in self._state.namespaces.items()
            for namespace in known
            if namespace in roots
        }

    def handle(self, event: Event, now: float) -> list[Action]:
        """What is to be done after an event. `now` never runs backwards; seconds.

        Raises ValueError for an event that contradicts what the machine asked for (a step it did
        not start); ends of unknown transfers and cancels of unknown requests do nothing.
        """
        state = self._state
        state.actions = []
        if state.holds:
            control.end_expired(state, now)
        self._take(event, now)
        while state.flight is None:
            done = len(state.actions)
            if state.swap is not None:
                _swap_when_possible(state, state.swap, now)
            stepping.make_room(state, now)  # before anybody new takes the pages
            admission.admit(state, now)
            stepping.compose(state)
            if done == len(state.actions) and not _is_stuck_by_a_hold(state):
                break  # otherwise something has ended, and so made room
        waiting = len(state.waiting)
        admission.admit(state, now)  # for the step after, so that loads start early
        if len(state.waiting) < waiting:
            stepping.end_repeat(state)
        return state.actions

    def _take(self, event: Event, now: float) -> None:
        state = self._state
        match event:
            case Arrived():
                _arrived(state, event, now)
            case StepDone():
                stepping.step_done(state, event, now)
            case LoadDone() | LoadFailed():
                transfers.load_ended(state, event, now)
            case StoreDone():
                transfers.store_ended(state, event, now)
            case Cancelled():
                _cancelled(state, event, now)
            case WeightsReplaced():
                state.swap = event
            case HoldPrefix():
                control.hold(state, event, now)
            case LetGo():
                control.let_go(state, event)
            case FlushPrefixes():
                control.flush(state, event)
            case Wake():
                pass
            case _:
                raise TypeError(f"{type(event).__name__} is not an event")


def _arrived(state: State, event: Arrived, now: float) -> None:
    request = event.request
    why = _refusal(state, event)
    if why is not None:
        state.actions.append(Reject(request.id, why))
        return
    state.arrivals += 1
    namespace = state.namespace_of(state.epoch, request.domain, request.salt)
    state.know(namespace, request.domain)
    sequence = Sequence(request, 0, namespace, state.arrivals, state.settings.context)
    sequence.work_at_arrival = state.work
    state.live[request.id] = Live(sequence)
    state.waiting.add(sequence, now)


def _refusal(state: State, event: Arrived) -> str | None:
    """Why a request can never run, in one sentence for its caller; None when it can."""
    request, settings, pool = event.request, state.settings, state.cache.pool
    tokens = count(request.prompt)
    if request.id in state.live:
        return f"Request {request.id} is already being served; give each request its own id."
    if tokens == 0 or len(request.prompt) % WIDTH:
        return "The prompt is empty; send at least one token."
    if request.max_tokens < 1 or request.choices < 1:
        return "max_tokens and n must be at least 1."
    if request.choices > settings.running:
        return f"n is {request.choices}, but at most {settings.running} choices can run at once."
    if tokens > settings.context:
        return (
            f"The prompt has {tokens} tokens, but the model's context is {settings.context}; "
            "shorten the prompt."
        )
    room = state.cache.room(request.domain) * pool.page
    if tokens > room:
        return (
            f"The prompt has {tokens} tokens, but the KV memory holds {room}; "
            "shorten the prompt or give the engine more KV memory."
        )
    return None


def _cancelled(state: State, event: Cancelled, now: float) -> None:
    """End a request's leases now, or when the step that writes their pages is done."""
    live = state.live.get(event.request)
    if live is None:
        return
    for sequence in list(live.sequences):
        sequence.cancelled = True
        if state.in_flight(sequence):
            continue  # its pages are being written; it ends with the step
        if sequence.load is not None:
            transfers.cancel_load(state, sequence, now)
        elif sequence.lease is None:
            state.waiting.remove(sequence)
        else:
            take_off(state, sequence, now)
        finish(state, sequence, "cancelled")


def _swap_when_possible(state: State, swap: WeightsReplaced, now: float) -> None:
    """Replace the weights between two steps; old KV becomes unreachable in the same call."""
    if state.flight is not None or (swap.mode == "drain" and _has_begun(state)):
        return
    for sequence in [*state.running, *(load.sequence for load in state.loads.values())]:
        if sequence.load is not None:
            transfers.cancel_load(state, sequence, now)
        elif sequence.lease is not None:
            take_off(state, sequence, now)
        else:
            continue  # the sequence of a load that was cancelled before
        sequence.begin_again()
        state.waiting.add(sequence, now)
    for hold in list(state.holds):
        control.end_hold(state, hold, "swapped")
    state.cache.forget_all()
    state.namespaces.clear()
    state.ladder.forget()
    state.epoch, state.swap = swap.epoch, None
    for sequence in state.waiting:
        request = sequence.request
        sequence.namespace = state.namespace_of(state.epoch, request.domain, request.salt)
        state.know(sequence.namespace, request.domain)
    state.waiting.rematch_all()
    state.actions.append(SwapWeights(swap.epoch))


def _is_stuck_by_a_hold(state: State) -> bool:
    """Nothing is under way and somebody waits; a hold was in the way, and is no more."""
    at_work = state.running or state.loads or state.stores or state.swap
    return bool(state.waiting) and not at_work and control.give_up_a_hold(state)


def _has_begun(state: State) -> bool:
    return (
        bool(state.running)
        or any(sequence.started for sequence in state.waiting)
        or any(load.orphaned is None for load in state.loads.values())
    )
