"""Eviction policies an operator can choose from, by name."""

from __future__ import annotations

from collections.abc import Callable

from headwater.cache.policies.lru import LRU
from headwater.cache.policies.policy import Policy, Ranked

POLICIES: dict[str, Callable[[], Policy]] = {"lru": LRU}


def policy_named(name: str) -> Policy:
    """A new policy. Raises ValueError for a name that is not known."""
    try:
        return POLICIES[name]()
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise ValueError(f"there is no policy named {name!r}; known are: {known}") from None


__all__ = ["LRU", "POLICIES", "Policy", "Ranked", "policy_named"]
