"""Every policy an operator can choose conforms; an unknown one is refused by name."""

from __future__ import annotations

import pytest

from headwater.cache.policies import LRU, POLICIES, policy_named
from headwater.testing.policy_suite import PolicyConformance
from tests.cache.stories import a_rig, arrive, serve


@pytest.mark.parametrize("name", sorted(POLICIES))
class TestEveryPolicy(PolicyConformance):
    @pytest.fixture(autouse=True)
    def _chosen(self, name):
        self.name = name

    def make(self):
        return policy_named(self.name)


def test_a_policy_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"no policy named 'best'.*lru"):
        policy_named("best")


def test_the_heap_of_offers_does_not_grow_with_use():
    rig = a_rig()
    serve(rig, [1, 2, 3, 4])
    for _ in range(5000):
        rig.release(arrive(rig, [1, 2, 3, 4]))
    policy = rig.cache.policy._policies[rig.cache.policy.common]
    assert isinstance(policy, LRU)
    assert len(policy._heap) <= 1024
