"""Composing a step, and what follows from one that is done."""

from __future__ import annotations

import msgspec

from headwater.cache.lease import Lease
from headwater.cache.tokens import WIDTH, unpack
from headwater.schedule.account import Miss
from headwater.schedule.control import give_up_a_hold
from headwater.schedule.events import FinishReason, RunStep, StepDone
from headwater.schedule.layout import Layout
from headwater.schedule.sequence import Sequence, lease_of
from headwater.schedule.state import Flight, State, finish, take_off
from headwater.schedule.step import Copy, Sample, Score, Step
from headwater.schedule.transfers import store

# Composing


def compose(state: State) -> None:
    """Put the next step together and ask for it, when there is anything to compute."""
    sequences = _share_out(state)
    if not sequences:
        return
    layout = Layout(sequences, state.cache.page, state.sink)
    samples: list[Sample] = []
    fed: list[Sequence] = []
    for sequence in sequences:
        end = sequence.end
        if end == sequence.known:
            row = sequence.row + end - sequence.begin - 1
            if sequence.generated:
                samples.append(Sample(row, sequence.request.id, sequence.choice, end))
                fed.append(sequence)
                continue
            for choice in sequence.choices():
                samples.append(Sample(row, sequence.request.id, choice, end))
                fed.append(sequence)
    step = Step(
        id=state.new_id(),
        tokens=layout.tokens,
        positions=layout.positions,
        slots=layout.slots,
        segments=layout.segments,
        samples=samples,
        copies=_copies(state, sequences),
        scores=[_score(each) for each in sequences if each.request.scores and _is_scored(each)],
        repeat=_repeat(state, sequences),
    )
    state.flight = Flight(step, sequences, fed)
    state.actions.append(RunStep(step))


def _is_scored(sequence: Sequence) -> bool:
    """It computes a row of the prompt behind which another token of the prompt follows."""
    return sequence.begin < sequence.prompt_tokens - 1


def _score(sequence: Sequence) -> Score:
    """The rows are [begin, end); their targets stand one position on, all in the prompt."""
    begin = sequence.begin
    end = min(sequence.end, sequence.prompt_tokens - 1)
    targets = unpack(sequence.request.prompt[(begin + 1) * WIDTH : (end + 1) * WIDTH]).tolist()
    return Score(sequence.row, sequence.request.id, begin + 1, targets)


def make_room(state: State, now: float) -> None:
    """Give every running sequence a page for its next token, preempting the youngest if need be."""
    page = state.cache.page
    for sequence in list(state.running):
        lease = sequence.lease
        if lease is None or sequence.known <= lease.table.pages * page:
            continue
        growth = state.settings.growth_pages
        while not state.cache.grow(lease, sequence.known, now, room=growth):
            if len(state.running) == 1 and not state.loads and not state.stores:
                if give_up_a_hold(state):
                    continue
                take_off(state, sequence, now)
                finish(state, sequence, "length")
                break
            victim = _youngest(state, sequence)
            _preempt(state, victim, now)
            if victim is sequence:
                break


def _youngest(state: State, needy: Sequence) -> Sequence:
    """Of the lowest priority, the one that came last, of those whose pages `needy` could get."""
    share = lease_of(needy).root.share

    def helps(sequence: Sequence) -> bool:
        other = lease_of(sequence).root.share
        return other is share or other.cached > other.floor

    candidates = (each for each in state.running if each is needy or helps(each))
    return max(candidates, key=lambda s: (-s.request.priority, s.arrival, s.choice))


def _preempt(state: State, sequence: Sequence, now: float) -> None:
    """Back to the waiting room. Its KV stays cached, evictable; it keeps its place in line."""
    take_off(state, sequence, now)
    sequence.account.preemptions += 1
    state.waiting.add(sequence, now)


def _share_out(state: State) -> list[Sequence]:
    """Who computes what: decode rows first, then prompts, of the highest priority first and else in
    the order they were admitted."""
    left = state.settings.step_tokens
    chosen: list[Sequence] = []
    prompts: list[Sequence] = []
    for sequence in state.running:
        known = sequence.known
        if known - lease_of(sequence).written > 1:
            prompts.append(sequence)
        else:
            sequence.begin, sequence.end = known - 1, known
            chosen.append(sequence)
    left -= len(chosen)
    prompts.sort(key=lambda sequence: -sequence.request.priority)  # stable
    for sequence in prompts:
        if left <= 0:
            break
        lease = lease_of(sequence)
        begin = sequence.begin = lease.written
        most = state.settings.scored_rows if sequence.request.scores else left
        limit = min(begin + min(left, most), sequence.known)
        sequence.end = state.waiting.next_branch(lease, begin, limit)
        chosen.append(sequence)
        left -= sequence.end - begin
    return chosen


def end_repeat(state: State) -> None:
    """Somebody was admitted after the step was composed: the next one is not the same again."""
    for index, action in enumerate(state.actions):
        if isinstance(action, RunStep) and action.step.repeat:
            state.actions[index] = RunStep(msgspec.structs.replace(action.step, repeat=0))


def _copies(state: State, sequences: list[Sequence]) -> list[Copy]:
    copies: list[Copy] = []
    if not state.cache.pins:  # nothing is being read, so nothing is to be copied
        return copies
    for sequence in sequences:
        lease = lease_of(sequence)
        if lease.copy is not None:
            copies.append(Copy(*state.cache.copy_of(lease)))
    return copies


def _repeat(state: State, sequences: list[Sequence]) -> int:
    """How many more steps look like this one, if nothing arrives and nobody stops early.

    Until an answer has its length, or a page is full: then it is published, and the tree changes.
    """
    page = state.cache.page
    steps = page
    for sequence in reversed(sequences):  # prompts, which end the search, come last
        begin, known, lease = sequence.begin, sequence.known, lease_of(sequence)
        if known != begin + 1 or not sequence.generated or begin < lease.written:
            return 0
        if lease.copy is not None:  # afterwards its source is free, and somebody may fit
            return 0
        to_full_page, to_length = page - 1 - begin % page, sequence.last - known - 1
        room = to_full_page if to_full_page < to_length else to_length
        steps = min(steps, room)
    return max(steps, 0)


# After a step


def step_done(state: State, event: StepDone, now: float) -> None:
    """Publish what was written, take the sampled tokens, and let go of who is finished."""
    flight = state.flight
    if flight is None or flight.step.id != event.step:
        raise ValueError(f"step {event.step} is done, but it is not the one that runs")
    if not len(event.tokens) == len(event.stopped) == len(flight.fed):
        raise ValueError(f"step {event.step} drew {len(event.tokens)} of {len(flight.fed)}")
    state.flight = None
    page = state.cache.page
    for sequence in flight.sequences:
        lease = lease_of(sequence)
        end = sequence.end
        in_mid_page = end % page and end - sequence.begin == 1 and end > sequence.rewrites
        if in_mid_page and sequence.generated and lease.copy is None:
            lease.written = end  # an answer is published whenever a page is full
        else:
            _written(state, sequence, lease, now)
    drawn = zip(flight.fed, flight.step.samples, event.tokens, event.stopped, strict=True)
    for sequence, sample, token, stopped in drawn:
        if sequence.cancelled:
            continue
        taker = sequence
        if sample.choice != sequence.choice:
            taker = _fork(state, sequence, sample.choice)
        taker.append(token)
        if stopped or token in taker.stops:
            _end(state, taker, "stop", now)
        elif taker.known >= taker.last:
            _end(state, taker, "length", now)
        elif taker is not sequence:
            state.waiting.add(taker, now)
    for sequence in flight.sequences:
        if sequence.cancelled:
            _end(state, sequence, "cancelled", now)


def _written(state: State, sequence: Sequence, lease: Lease, now: float) -> None:
    """Publish, to the token, what a sequence has written up to now."""
    end = sequence.end
    state.cache.copied(lease)
    _count(state, sequence)
    state.cache.commit(lease, sequence.full_key(), max(end, lease.written), now)
    state.waiting.reached(lease, now)
    if end == sequence.prompt_tokens and not lease.apart:
        store(state, sequence, now)


def _end(state: State, sequence: Sequence, reason: FinishReason, now: float) -> None:
    if sequence.lease is not None:
        take_off(state, sequence, now)
    finish(state, sequence, reason)


def _count(state: State, sequence: Sequence) -> None:
    """Count prompt tokens where they are computed, and nowhere else.

    0            counted           begin             end
    |  accounted for |  others' work  |  this step's  |
    """
    account = sequence.account
    begin = min(sequence.begin, sequence.prompt_tokens)
    end = min(sequence.end, sequence.prompt_tokens)
    counted = account.cached + account.loaded + account.computed
    account.cached += max(begin - counted, 0)  # became ready after the sequence was admitted
    fresh = max(end - max(counted, begin), 0)
    account.computed += fresh
    account.recomputed += max(min(sequence.end, sequence.rewrites) - sequence.begin, 0)
    state.work += fresh


def _fork(state: State, parent: Sequence, choice: int) -> Sequence:
    """A further choice of a prompt, which from here on goes its own way."""
    context = state.settings.context
    sequence = Sequence(parent.request, choice, parent.namespace, parent.arrival, context)
    sequence.started = True
    sequence.account.cached = sequence.rewrites = sequence.prompt_tokens
    sequence.account.miss = Miss("all_reused", sequence.prompt_tokens)
    state.live[parent.request.id].sequences.append(sequence)
    return sequence
