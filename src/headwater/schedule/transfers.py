"""Transfers between the device and the tiers behind it: started, ended, cancelled.

A transfer's pages are nobody else's until it has ended, even when its request is gone.
"""

from __future__ import annotations

from headwater.cache.tokens import WIDTH
from headwater.schedule.events import (
    CancelLoad,
    LoadDone,
    LoadFailed,
    StartLoad,
    StartStore,
    StoreDone,
)
from headwater.schedule.sequence import Sequence, lease_of
from headwater.schedule.state import Load, State
from headwater.schedule.step import SlotRun


def load(state: State, sequence: Sequence, ready: int, now: float) -> bool:
    """Start loading what a tier offers beyond the ready part; False when there is nothing."""
    offer = state.ladder.offer(sequence.namespace, sequence.key, ready, now)
    end = 0 if offer is None else min(offer.end, sequence.prompt_tokens)
    if offer is None or end <= ready:
        return False
    number = state.new_id()
    state.loads[number] = Load(sequence, offer.tier, ready, end)
    sequence.load = number
    sequence.waiting_since = now
    state.actions.append(
        StartLoad(
            load=number,
            request=sequence.request.id,
            namespace=sequence.namespace,
            tier=offer.tier,
            begin=ready,
            end=end,
            slots=_slots(state, sequence, ready, end),
        )
    )
    return True


def load_ended(state: State, event: LoadDone | LoadFailed, now: float) -> None:
    """Publish what was delivered; the rest will be computed. Late or unknown ends do nothing."""
    load = state.loads.pop(event.load, None)
    if load is None:
        return
    delivered = 0
    if isinstance(event, LoadDone):
        delivered = max(0, min(event.tokens, load.end - load.begin))
    state.ladder.loaded(load.tier, load.end - load.begin, delivered, now)
    if load.orphaned is not None:
        state.cache.take_back(load.orphaned)
        if load.guard is not None:
            state.cache.unpin(load.guard)
        return
    sequence = load.sequence
    sequence.load = None
    account = sequence.account
    account.waited_load += now - sequence.waiting_since
    counted = account.cached + account.loaded + account.computed
    account.loaded += max(load.begin + delivered - max(counted, load.begin), 0)
    account.tier = load.tier
    if isinstance(event, LoadFailed):
        account.load_failure = event.why
    state.running[sequence] = None
    if delivered:
        lease = lease_of(sequence)
        state.cache.commit(lease, sequence.full_key(), load.begin + delivered, now)
        state.waiting.reached(lease, now)


def cancel_load(state: State, sequence: Sequence, now: float) -> None:
    """Nobody waits for the load any more: the sequence lets go, its pages follow at the end."""
    assert sequence.load is not None
    lease = lease_of(sequence)
    load = state.loads[sequence.load]
    load.orphaned = state.cache.hand_over(lease)
    state.actions.append(CancelLoad(sequence.load))
    if load.begin % state.cache.page:
        # It still writes into the last page of the path, which is the tree's. A pinned leaf is not
        # adopted, so until the load has ended nobody else goes on in that page.
        load.guard = state.cache.pin(lease)
    state.cache.release(lease, now)
    state.waiting.fallen(lease, now)
    sequence.lease = None
    sequence.load = None


def store(state: State, sequence: Sequence, now: float) -> None:
    """Ask the ladder what of a published prefix should be kept behind the device."""
    lease = lease_of(sequence)
    key = sequence.full_key()
    pin = state.cache.pin(lease)
    offer = state.ladder.keep(sequence.namespace, key, pin.end, now)
    if offer is None or offer.end > pin.end:
        state.cache.unpin(pin)
        return
    number = state.new_id()
    state.stores[number] = pin
    state.actions.append(
        StartStore(
            store=number,
            namespace=sequence.namespace,
            tier=offer.tier,
            tokens=key[: offer.end * WIDTH],
            begin=offer.begin,
            end=offer.end,
            slots=_slots(state, sequence, offer.begin, offer.end),
        )
    )


def store_ended(state: State, event: StoreDone, now: float) -> None:
    pin = state.stores.pop(event.store, None)
    if pin is not None:
        state.cache.unpin(pin)


def _slots(state: State, sequence: Sequence, begin: int, end: int) -> tuple[SlotRun, ...]:
    extents = lease_of(sequence).slots(begin, end, state.cache.page)
    return tuple(SlotRun(first, count) for first, count in extents)
