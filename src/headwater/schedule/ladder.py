"""What the state machine asks of the tiers behind the device. Pure; tiers themselves do the I/O."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Offer(msgspec.Struct, frozen=True):
    """A tier holds the KV of positions [begin, end) of a prompt, and loading it is worth while."""

    tier: str
    begin: int
    end: int


class Ladder(Protocol):
    """Decides loads and stores. The machine tells it how they ended."""

    def offer(self, namespace: bytes, key: bytes, ready: int, now: float) -> Offer | None:
        """What to load for a prompt of which [0, ready) is on the device. Asking pins nothing."""

    def keep(self, namespace: bytes, key: bytes, written: int, now: float) -> Offer | None:
        """What to store of a prefix whose first `written` tokens have KV on the device."""

    def loaded(self, tier: str, asked: int, delivered: int, now: float) -> None:
        """A load ended; delivered < asked is a miss for the rest."""

    def forget(self) -> None:
        """The weights changed: nothing that was stored may be offered again."""


class NoTiers:
    """Only the device."""

    def offer(self, namespace: bytes, key: bytes, ready: int, now: float) -> Offer | None:
        return None

    def keep(self, namespace: bytes, key: bytes, written: int, now: float) -> Offer | None:
        return None

    def loaded(self, tier: str, asked: int, delivered: int, now: float) -> None:
        pass

    def forget(self) -> None:
        pass
