"""Composing a step, and what follows from one that is done."""

from __future__ import annotations

from headwater.schedule.events import FinishReason, RunStep, StepDone
from headwater.schedule.layout import Entry, Layout
from headwater.schedule.sequence import Sequence
from headwater.schedule.state import Flight, State, finish, lease_of, take_off
from headwater.schedule.step import Copy, Sample, Step
from headwater.schedule.transfers import store

# Composing


def compose(state: State, now: float) -> None:
    """Put the next step together and ask for it, when there is anything to compute."""
    _make_room(state, now)
    entries = _entries(state)
    if not entries:
        return
    layout = Layout(entries, state.cache.page, state.sink)
    samples: list[Sample] = []
    fed: list[tuple[Sequence, int]] = []
    for entry in entries:
        sequence = entry.sequence
        if entry.end < sequence.known:
            continue
        row = entry.row + entry.end - entry.begin - 1
        for choice in sequence.choices():
            samples.append(Sample(row, sequence.request.id, choice, entry.end))
            fed.append((sequence, choice))
    step = Step(
        id=state.new_id(),
        tokens=layout.tokens,
        positions=layout.positions,
        slots=layout.slots,
        segments=layout.segments,
        samples=samples,
        copies=_copies(state, entries),
        repeat=_repeat(state, entries),
    )
    state.flight = Flight(step.id, entries, fed)
    state.actions.append(RunStep(step))


def _make_room(state: State, now: float) -> None:
    """Give every running sequence a page for its next token, preempting the youngest if need be."""
    page = state.cache.page
    for sequence in list(state.running):
        lease = sequence.lease
        if lease is None or sequence.known <= lease.table.pages * page:
            continue
        growth = state.settings.growth_pages
        while not state.cache.grow(lease, sequence.known, now, room=growth):
            if len(state.running) == 1 and not state.loads and not state.stores:
                take_off(state, sequence, now)
                finish(state, sequence, "length")
                break
            victim = _youngest(state)
            _preempt(state, victim, now)
            if victim is sequence:
                break


def _youngest(state: State) -> Sequence:
    """Of the lowest priority, the one that came last."""
    return max(state.running, key=lambda s: (-s.request.priority, s.arrival, s.choice))


def _preempt(state: State, sequence: Sequence, now: float) -> None:
    """Back to the waiting room. Its KV stays cached, evictable; it keeps its place in line."""
    take_off(state, sequence, now)
    sequence.account.preemptions += 1
    state.waiting.add(sequence, now)


def _entries(state: State) -> list[Entry]:
    """Who computes what: decode rows first, then prompts in the order they were admitted."""
    left = state.settings.step_tokens
    decoding: list[Entry] = []
    prompts: list[Sequence] = []
    for sequence in state.running:
        known = sequence.known
        written = lease_of(sequence).written
        if known - written > 1:
            prompts.append(sequence)
        elif left > 0:
            decoding.append(Entry(sequence, known - 1, known))
            left -= 1
    for sequence in prompts:
        if left <= 0:
            break
        lease = lease_of(sequence)
        begin = lease.written
        end = state.waiting.next_branch(lease, begin, min(begin + left, sequence.known))
        decoding.append(Entry(sequence, begin, end))
        left -= end - begin
    return decoding


def _copies(state: State, entries: list[Entry]) -> list[Copy]:
    copies = []
    for entry in entries:
        lease = lease_of(entry.sequence)
        if lease.copy is not None:
            copy = state.cache.copy_of(lease)
            assert copy is not None
            copies.append(Copy(*copy))
    return copies


def _repeat(state: State, entries: list[Entry]) -> int:
    """How many more steps look like this one, if nothing arrives and nobody stops early."""
    page = state.cache.page
    steps = state.settings.context
    for entry in entries:
        sequence = entry.sequence
        if entry.end - entry.begin > 1 or not sequence.generated or entry.is_recomputed:
            return 0
        steps = min(
            steps,
            sequence.request.max_tokens - sequence.generated - 1,
            state.settings.context - sequence.known - 1,
            page
            - 1
            - entry.begin % page,  # then a page is full, is published, and the tree changes
        )
    return max(steps, 0)


# After a step


def step_done(state: State, event: StepDone, now: float) -> None:
    """Publish what was written, take the sampled tokens, and let go of who is finished."""
    flight = state.flight
    if flight is None or flight.step != event.step:
        raise ValueError(f"step {event.step} is done, but it is not the one that runs")
    if not len(event.tokens) == len(event.stopped) == len(flight.samples):
        raise ValueError(f"step {event.step} drew {len(event.tokens)} of {len(flight.samples)}")
    state.flight = None
    for entry in flight.entries:
        _written(state, entry, now)
    drawn = zip(flight.samples, event.tokens, event.stopped, strict=True)
    for (sequence, choice), token, stopped in drawn:
        if sequence.cancelled:
            continue
        taker = sequence if choice == sequence.choice else _fork(state, sequence, choice)
        taker.append(token)
        reason = _reason(state, taker, token, stopped=stopped)
        if reason is None and taker is not sequence:
            state.waiting.add(taker, now)
        elif reason is not None:
            if taker.lease is not None:
                take_off(state, taker, now)
            finish(state, taker, reason)
    for entry in flight.entries:
        if entry.sequence.cancelled and entry.sequence.lease is not None:
            take_off(state, entry.sequence, now)


def _written(state: State, entry: Entry, now: float) -> None:
    """An entry's KV is there. Whole prompts' and whole pages' worth of it is published."""
    sequence = entry.sequence
    lease = lease_of(sequence)
    state.cache.copied(lease)
    _count(state, sequence, entry)
    is_page_full = entry.end % state.cache.page == 0
    if sequence.generated and entry.end - entry.begin == 1 and not is_page_full:
        lease.written = entry.end
        return
    state.cache.commit(lease, sequence.full_key(), max(entry.end, lease.written), now)
    state.waiting.reached(lease)
    if entry.end == sequence.prompt_tokens:
        store(state, sequence, now)


def _count(state: State, sequence: Sequence, entry: Entry) -> None:
    """Count prompt tokens where they are computed, and nowhere else."""
    account = sequence.account
    first_time = max(account.cached + account.loaded + account.computed, entry.begin)
    fresh = max(min(entry.end, sequence.prompt_tokens) - first_time, 0)
    account.computed += fresh
    again = min(entry.end, first_time) - entry.begin
    if again > 0 and sequence.account.preemptions:
        account.recomputed += again
    state.work += fresh


def _fork(state: State, parent: Sequence, choice: int) -> Sequence:
    """A further choice of a prompt, which from here on goes its own way."""
    sequence = Sequence(parent.request, choice, parent.namespace, parent.arrival)
    sequence.arrived = parent.arrived
    sequence.started = True
    sequence.account.cached = sequence.prompt_tokens
    state.live[parent.request.id].sequences.append(sequence)
    return sequence


def _reason(state: State, sequence: Sequence, token: int, *, stopped: bool) -> FinishReason | None:
    if stopped or token in sequence.request.stop_tokens:
        return "stop"
    if sequence.generated >= sequence.request.max_tokens:
        return "length"
    if sequence.known >= state.settings.context:
        return "length"
    return None
