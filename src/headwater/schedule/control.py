"""What may be asked of the cache itself: to keep a prefix for a while, to forget some, to tell.

A hold is a promise to its caller, so it counts against a bound of its domain and ends by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.cache.lease import Pin
from headwater.cache.tokens import WIDTH, count
from headwater.cache.tree import Node
from headwater.schedule.account import Miss
from headwater.schedule.events import (
    Flushed,
    FlushPrefixes,
    Held,
    HoldEnd,
    HoldEnded,
    HoldPrefix,
    LetGo,
    WakeAt,
)
from headwater.schedule.state import Hold, State


def hold(state: State, event: HoldPrefix, now: float) -> None:
    """Keep what is ready, as far as the domain has pages left for it."""
    let_go(state, LetGo(event.hold))
    spent = sum(each.pages for each in state.holds.values() if each.domain == event.domain)
    pin: Pin | None = None
    if event.until > now and event.pages > spent:
        namespace = state.namespace_of(state.epoch, event.domain, event.salt)
        pin = state.cache.hold(namespace, event.prompt, event.pages - spent)
    if pin is None:
        state.actions.append(Held(event.hold, 0, 0))
        return
    pages = -(-pin.end // state.cache.page)
    state.holds[event.hold] = Hold(pin, event.domain, pages, event.until)
    state.actions.append(Held(event.hold, pin.end, pages))
    _wake(state)


def let_go(state: State, event: LetGo) -> None:
    held = state.holds.pop(event.hold, None)
    if held is not None:
        state.cache.unpin(held.pin)


def end_hold(state: State, number: int, why: HoldEnd) -> None:
    """End a hold that its caller still counts on."""
    let_go(state, LetGo(number))
    state.actions.append(HoldEnded(number, why))


def end_expired(state: State, now: float) -> None:
    """End what was to be held until now."""
    over = [number for number, held in state.holds.items() if held.until <= now]
    for number in over:
        end_hold(state, number, "expired")
    if over:
        _wake(state)


def give_up_a_hold(state: State) -> bool:
    """End the hold that would end first, since a request needs its pages; False without any.

    A hold must not stop the service: what is running and waiting comes first.
    """
    if not state.holds:
        return False
    soonest = min(state.holds, key=lambda number: (state.holds[number].until, number))
    end_hold(state, soonest, "needed")
    return True


def _wake(state: State) -> None:
    if state.holds:
        state.actions.append(WakeAt(min(held.until for held in state.holds.values())))


def flush(state: State, event: FlushPrefixes) -> None:
    """Forget prefixes of one domain; count what went and what could not."""
    tokens = in_use = 0
    for namespace in _namespaces(state, event):
        root = state.cache.tree.roots[namespace]
        for number, held in list(state.holds.items()):
            if held.pin.root is root and _is_within(held.pin.node, event.prefix):
                end_hold(state, number, "flushed")
        if namespace in state.cache.tree.roots:
            gone, kept = state.cache.flush(namespace, event.prefix)
            tokens += gone
            in_use += kept
    state.actions.append(Flushed(event.flush, tokens, in_use))


def _namespaces(state: State, event: FlushPrefixes) -> list[bytes]:
    roots = state.cache.tree.roots
    if event.salt is None:
        return [each for each in state.namespaces.get(event.domain, ()) if each in roots]
    namespace = state.namespace_of(state.epoch, event.domain, event.salt)
    return [namespace] if namespace in roots else []


def _is_within(node: Node, prefix: bytes) -> bool:
    """The path to a node begins with a prefix."""
    parts: list[bytes] = []
    at: Node | None = node
    while at is not None:
        parts.append(at.tokens)
        at = at.parent
    return b"".join(reversed(parts)).startswith(prefix)


class HoldView(NamedTuple):
    """A hold as its domain sees it: tokens, pages, and until when."""

    hold: int
    tokens: int
    pages: int
    until: float


def holds_of(state: State, domain: str) -> list[HoldView]:
    return [
        HoldView(number, held.pin.end, held.pages, held.until)
        for number, held in state.holds.items()
        if held.domain == domain
    ]


class Forecast(NamedTuple):
    """What a prompt would find now: tokens that are ready, tokens being made, why no more."""

    ready: int
    promised: int
    miss: Miss


def forecast(state: State, prompt: bytes, domain: str, salt: str) -> Forecast:
    """Match a prompt. Changes nothing, so that asking costs nobody anything."""
    match = state.cache.match(state.namespace_of(state.epoch, domain, salt), prompt)
    tokens = count(prompt)
    assert len(prompt) % WIDTH == 0
    return Forecast(min(match.ready, max(tokens - 1, 0)), match.promised, Miss.of(match, tokens))
