"""What every eviction policy must do, whatever it prefers: for ours and for plug-in authors.

    class TestMine(PolicyConformance):
        def make(self):
            return Mine()

Subclass it in a test module and pytest runs all of it. A policy is free to choose any leaf; it is
not free to offer what is in use, to run dry while something is evictable, or to need luck.
"""

from __future__ import annotations

import random

import pytest

from headwater.cache.policies.policy import Policy
from headwater.cache.tokens import count, pack
from headwater.testing.rig import Rig

NAMESPACE = b"conformance"


class PolicyConformance:
    """Inherit, and say how the policy is made."""

    def make(self) -> Policy:
        """A new policy that has seen nothing."""
        raise NotImplementedError

    def rig(self, pages: int = 12, page: int = 4) -> Rig:
        return Rig.of(self.make(), pages=pages, page=page)

    def test_a_new_policy_offers_nothing(self) -> None:
        assert self.make().next() is None

    def test_asking_twice_gives_the_same_leaf(self) -> None:
        """The cache trims a leaf page by page, and looks before it takes."""
        rig = self.rig()
        for name in (1, 2, 3):
            serve(rig, [name] * 8)
        first = rig.cache.policy.next()
        assert first is not None
        assert rig.cache.policy.next() is first

    def test_what_is_held_is_not_offered(self) -> None:
        rig = self.rig()
        serve(rig, [1] * 8)
        holder = rig.begin(NAMESPACE, pack([1] * 8))
        assert rig.cache.policy.next() is None
        rig.release(holder)
        assert rig.cache.policy.next() is not None

    def test_a_head_is_not_offered_before_its_tail(self) -> None:
        rig = self.rig()
        for tail in (1, 2):
            serve(rig, [0, 0, 0, 0, tail, tail, tail, tail])
        offered = rig.cache.policy.next()
        assert offered is not None
        assert offered.live_children == 0

    @pytest.mark.parametrize("pages", [3, 12])
    def test_it_gives_all_there_is_and_then_nothing(self, pages: int) -> None:
        rig = self.rig(pages)
        rng = random.Random(pages)
        for _ in range(40):
            serve(rig, [rng.randrange(3) for _ in range(rng.randrange(1, 4 * pages))])
        whole = rig.begin(b"another", pack(range(1000, 1000 + 4 * pages)))
        assert rig.grow(whole, 4 * pages)
        assert rig.cache.policy.next() is None

    def test_a_trimmed_leaf_stays_on_offer(self) -> None:
        rig = self.rig(pages=4)
        serve(rig, [1] * 16)
        other = rig.begin(b"another", pack([2]))
        assert rig.grow(other, 4)
        assert rig.cache.policy.next() is not None
        assert rig.look(NAMESPACE, pack([1] * 16)).ready == 12

    def test_a_forgotten_leaf_is_not_offered(self) -> None:
        rig = self.rig()
        serve(rig, [1] * 8)
        rig.forget(NAMESPACE)
        assert rig.cache.policy.next() is None

    def test_equal_histories_evict_equally(self) -> None:
        """No clock, no randomness, no memory addresses: a replay evicts what was evicted."""
        assert self._survivors(seed=1) == self._survivors(seed=1)

    def test_the_books_balance_under_random_use(self) -> None:
        for seed in range(5):
            self._survivors(seed)

    def _survivors(self, seed: int) -> list[int]:
        rng = random.Random(seed)
        rig = self.rig()
        prompts = [pack([rng.randrange(2) for _ in range(rng.randrange(1, 30))]) for _ in range(20)]
        for _ in range(150):
            sequence = rig.begin(NAMESPACE, rng.choice(prompts))
            rig.promise(sequence)
            rig.run(sequence, rng.randrange(sequence.computed, count(sequence.key) + 1))
            if rng.random() < 0.7:
                rig.release(sequence)
            while len(rig.sequences) > 2:
                rig.release(rig.sequences[0])
            rig.check()
        survivors = [rig.look(NAMESPACE, prompt).ready for prompt in prompts]
        rig.finish()
        return survivors


def serve(rig: Rig, tokens: list[int]) -> None:
    """A request comes, is computed and leaves."""
    sequence = rig.begin(NAMESPACE, pack(tokens))
    rig.promise(sequence)
    assert rig.run(sequence, len(tokens))
    rig.release(sequence)
    rig.check()
