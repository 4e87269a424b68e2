"""Random operations on a small cache: volume, where hypothesis gives small examples.

Every choice comes from the `random.Random` that is passed in, so a seed is a reproduction. The
shapes are small on purpose: with few tokens, few pages and few namespaces every operation meets
the others' leftovers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headwater.cache.policies import policy_named
from headwater.cache.shares import Shares
from headwater.cache.tokens import WIDTH, count, pack
from headwater.testing.rig import Rig, Sequence, domain_of

SMALL_TREE = 8
"""Up to so many nodes the full check follows every operation."""


@dataclass(frozen=True)
class Shape:
    """How big the world is in which the operations happen."""

    page: int = 4
    pages: int = 40
    ghost_tokens: int | None = None
    policy: str = "lru"
    namespaces: int = 2
    alphabet: int = 3
    longest: int = 40
    sequences: int = 6
    floors: tuple[int, ...] = ()  # pages of the first namespaces that others have to leave

    @classmethod
    def drawn(cls, rng: random.Random, policy: str = "lru") -> Shape:
        page = rng.choice((1, 4, 4, 16))
        pages = rng.choice((7, 7, 12, 40, 40, 200))
        return cls(
            page=page,
            pages=pages,
            ghost_tokens=rng.choice((0, 3 * page, 20 * page, None)),
            policy=policy,
            namespaces=rng.choice((1, 2, 3)),
            alphabet=rng.choice((1, 2, 3, 20)),
            longest=rng.choice((2 * page + 2, 6 * page, 10 * page)),
            sequences=rng.choice((2, 4, 8)),
            floors=rng.choice(((), (), (pages // 4,), (pages // 3, pages // 4))),
        )


class Driver:
    """Does one random thing after another and lets the rig watch."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng = rng
        self.shape = shape
        floors = {domain_of(bytes([i])): floor for i, floor in enumerate(shape.floors)}
        another = partial(policy_named, shape.policy)
        self.rig = Rig.of(
            Shares(another(), floors, another),
            pages=shape.pages,
            page=shape.page,
            ghost_tokens=shape.ghost_tokens,
        )
        self.operations = 0
        self._seen: list[bytes] = [self._fresh(shape.page)]  # prompts to come back to
        weights: dict[Callable[[], None], int] = {
            self._begin: 26,
            self._run: 24,
            self._promise: 6,
            self._grow: 6,
            self._copy: 6,
            self._forgo_copy: 2,
            self._write: 8,
            self._commit: 12,
            self._generate: 10,
            self._release: 12,
            self._abort: 2,
            self._end_transfer: 3,
            self._pin: 2,
            self._unpin: 3,
            self._forget: 1,
            self._hold: 2,
            self._flush: 1,
            self._follow: 3,
            self._look: 6,
        }
        self._choices = list(weights)
        self._cumulative = [sum(list(weights.values())[: i + 1]) for i in range(len(weights))]

    def run(self, operations: int) -> None:
        for _ in range(operations):
            self.step()
        self.rig.finish()

    def step(self) -> None:
        """One operation, and what must hold after it."""
        choose = self.rng.choices(self._choices, cum_weights=self._cumulative)
        choose[0]()
        self.operations += 1
        self.rig.check_watch()
        if self.rig.cache.tree.nodes <= SMALL_TREE or self.operations % 8 == 0:
            self.rig.check()
        if self.operations % 8 == 0:
            self.rig.verify_all()

    # Prompts

    def _fresh(self, length: int) -> bytes:
        return pack([self.rng.randrange(self.shape.alphabet) for _ in range(length)])

    def _prompt(self) -> bytes:
        """A prompt that was seen before, cut somewhere, with something new behind."""
        rng = self.rng
        longest = self.shape.longest
        seen = rng.choice(self._seen)
        keep = rng.choice((count(seen), rng.randrange(count(seen) + 1)))
        fresh = rng.choice((0, 1, self.shape.page, rng.randrange(longest)))
        prompt = (seen[: keep * WIDTH] + self._fresh(fresh))[: longest * WIDTH]
        prompt = prompt or self._fresh(1)
        self._remember(prompt)
        return prompt

    def _remember(self, key: bytes) -> None:
        if len(self._seen) < 16:
            self._seen.append(key)
        else:
            self._seen[self.rng.randrange(16)] = key

    def _namespace(self) -> bytes:
        return bytes([self.rng.randrange(self.shape.namespaces)])

    # Sequences

    def _any(self) -> Sequence | None:
        return self.rng.choice(self.rig.sequences) if self.rig.sequences else None

    def _begin(self) -> None:
        if len(self.rig.sequences) == self.shape.sequences:
            self._release()
        sequence = self.rig.begin(self._namespace(), self._prompt())
        sequence.lease.apart = self.rng.random() < 0.1
        if self.rng.random() < 0.7:
            self.rig.promise(sequence)

    def _run(self) -> None:
        """Prefill a chunk, as far as the sequence goes; end it when there is no memory."""
        sequence = self._any()
        if sequence is not None and not self.rig.run(
            sequence, self._target(sequence), self.rng.choice((0, 0, 2))
        ):
            self.rig.release(sequence)

    def _target(self, sequence: Sequence) -> int:
        end = count(sequence.key)
        chunk = self.rng.choice((1, self.shape.page, 2 * self.shape.page, end))
        return min(end, sequence.computed + chunk)

    def _promise(self) -> None:
        sequence = self._any()
        if sequence is not None and not sequence.is_in_flight:
            self.rig.promise(sequence)

    def _grow(self) -> None:
        sequence = self._any()
        if sequence is not None:
            self.rig.grow(sequence, self._target(sequence), self.rng.choice((0, 2)))

    def _copy(self) -> None:
        sequence = self._any()
        if sequence is not None and sequence.lease.table.pages > sequence.lease.shared:
            self.rig.copy(sequence)

    def _forgo_copy(self) -> None:
        sequence = self._any()
        if sequence is not None and not sequence.is_in_flight:
            self.rig.forgo_copy(sequence)

    def _write(self) -> None:
        """A step begins: as far as there are pages."""
        sequence = self._any()
        if sequence is None or sequence.lease.copy is not None:
            return
        room = sequence.lease.table.pages * self.shape.page
        to = min(room, self._target(sequence))
        if to > sequence.computed:
            self.rig.write(sequence, to)

    def _commit(self) -> None:
        """A step ends; of those in flight any may be first. With nothing new it must not matter."""
        in_flight = [s for s in self.rig.sequences if s.is_in_flight]
        sequence = self.rng.choice(in_flight) if in_flight else self._any()
        if sequence is not None:
            self.rig.commit(sequence)

    def _generate(self) -> None:
        sequence = self._any()
        if sequence is None:
            return
        more = self._fresh(self.rng.choice((1, 1, 1, self.shape.page)))
        if count(sequence.key) + count(more) <= 2 * self.shape.longest:
            sequence.key += more

    def _release(self) -> None:
        sequence = self._any()
        if sequence is not None:
            self._remember(sequence.key)
            if self.rng.random() < 0.5:
                sequence.lease.apart = False
                self.rig.commit(sequence)
            self.rig.release(sequence)

    def _abort(self) -> None:
        sequence = self._any()
        if sequence is not None:
            self.rig.abort_in_transfer(sequence)

    def _end_transfer(self) -> None:
        if self.rig.transfers:
            self.rig.end_transfer(self.rng.randrange(len(self.rig.transfers)))

    # Others

    def _pin(self) -> None:
        sequence = self._any()
        if sequence is not None and len(self.rig.stores) < 2:
            self.rig.pin(sequence)

    def _unpin(self) -> None:
        if self.rig.stores:
            self.rig.unpin(self.rng.randrange(len(self.rig.stores)))

    def _forget(self) -> None:
        self.rig.forget(self._namespace())

    def _hold(self) -> None:
        if len(self.rig.stores) < 2:
            pages = self.rng.choice((0, 1, 2, self.shape.pages))
            self.rig.hold(self._namespace(), self._prompt(), pages)

    def _flush(self) -> None:
        prompt = self._prompt()
        keep = self.rng.choice((count(prompt), self.rng.randrange(1, count(prompt) + 1)))
        self.rig.flush(self._namespace(), prompt[: keep * WIDTH])

    def _follow(self) -> None:
        self.rig.follow(self._namespace(), self.rng.choice(self._seen))

    def _look(self) -> None:
        self.rig.look(self._namespace(), self._prompt())
