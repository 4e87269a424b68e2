"""From waiting to running: who may start, with what, and when to wait for somebody else's KV."""

from __future__ import annotations

from headwater.cache.tree import Match
from headwater.schedule.account import Account, Miss
from headwater.schedule.sequence import Sequence
from headwater.schedule.state import State, finish
from headwater.schedule.transfers import load


def admit(state: State, now: float) -> None:
    """Start waiting sequences while the batch, the next step and the pool have room.

    A sequence whose prompt somebody is computing already waits for that and lets others pass. One
    that does not fit stops admission: letting smaller ones by would starve it.
    """
    if not state.waiting or _is_full(state):
        return
    room: dict[int, int] = {}  # by priority: rows of the next step that are left
    while not _is_full(state):
        sequence = state.waiting.next(state.match, state.work)
        if sequence is None or (state.swap is not None and not sequence.started):
            return  # while weights wait to be swapped only answers that have begun go on
        priority = sequence.request.priority
        if priority not in room:
            room[priority] = state.settings.step_tokens - _backlog(state, priority)
        if room[priority] <= 0:
            return
        match = sequence.match
        assert match is not None
        if match.promised - match.ready >= state.cache.page:
            state.waiting.follow(sequence, match, now)
            continue
        if not _start(state, sequence, match, now):
            return
        rows = max(sequence.known - sequence.written, 1)
        for lower in room:
            if lower <= priority:
                room[lower] -= rows


def _is_full(state: State) -> bool:
    return len(state.running) + state.loading >= state.settings.running


def _backlog(state: State, priority: int) -> int:
    """Rows that the running sequences still want after the step that runs: of prompts, and one for
    each that generates. Prompts of a lower priority would give way, so they do not count."""
    running = [s for s in state.running if s.request.priority >= priority or s.generated]
    flight = state.flight.sequences if state.flight else []
    coming = sum(s.end - s.begin for s in flight if s.request.priority >= priority or s.generated)
    return sum(max(s.known - s.written, 1) for s in running) - coming


def _start(state: State, sequence: Sequence, match: Match, now: float) -> bool:
    cache, page = state.cache, state.cache.page
    pages = -(-sequence.known // page)
    request = sequence.request
    if pages > cache.room(request.domain):  # its answer has outgrown the pool
        state.waiting.remove(sequence)
        finish(state, sequence, "length")
        return True
    if not cache.fits(match, sequence.known, request.domain):
        return False  # nothing has changed
    key = sequence.full_key()
    found = key if request.reads else b""
    lease = cache.lease(sequence.namespace, found, now, request.id, request.domain)
    lease.apart = not (request.reads and request.stores)
    cache.promise(lease, key)
    growth = state.settings.growth_pages
    if not cache.grow(lease, sequence.known, now, room=growth):
        cache.forgo_copy(lease)  # the source of the copy may be the page that is missing
        if not cache.grow(lease, sequence.known, now):
            raise RuntimeError(f"{sequence} was found to fit and does not")
    ready = lease.written
    state.waiting.remove(sequence)
    state.waiting.admitted()
    _account(sequence, match, ready, now)
    sequence.lease = lease
    sequence.started = True
    if not (request.reads and load(state, sequence, ready, now)):
        state.running[sequence] = None
    return True


def _account(sequence: Sequence, match: Match, ready: int, now: float) -> None:
    account: Account = sequence.account
    account.waited_queue += now - sequence.waiting_since - sequence.followed
    account.waited_promise += sequence.followed
    sequence.followed = 0.0
    if account.miss is None:  # not after a preemption: no token counts twice
        account.cached = min(ready, sequence.prompt_tokens - 1)
        if sequence.request.reads:
            account.miss = Miss.of(match, sequence.prompt_tokens)
        else:
            account.miss = Miss("not_shared", 0)
