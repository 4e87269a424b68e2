"""A tier that keeps real digests and keeps few promises, with the ladder that speaks for it.

The ladder half (`offer`, `keep`, `loaded`, `forget`) is what the machine asks; the other half is
the mover, which carries out loads and stores on the simulated KV memory and says how they ended.
Loads end whole, short, failed, or with a length that was never asked for, as the seed has it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

from headwater.cache.tokens import WIDTH, count
from headwater.schedule.events import (
    CancelLoad,
    LoadDone,
    LoadFailed,
    StartLoad,
    StartStore,
    StoreDone,
)
from headwater.schedule.ladder import Offer
from headwater.testing.fake_model import FakeModel, slots_of
from headwater.testing.slots import Corrupt

TIER = "attic"


class FakeTier:
    """One tier. It remembers what it answered, so that a recorded run can be replayed."""

    def __init__(self, rng: random.Random, model: FakeModel, *, honest: bool = False) -> None:
        """honest: it offers all it has, keeps all it can, and every load ends whole."""
        self.answers: list[Offer | None] = []
        self._rng = rng
        self._model = model
        self._honest = honest
        self._kept: dict[bytes, dict[int, int]] = {}  # namespace -> digest of the text -> of KV
        self._loads: dict[int, tuple[StartLoad, bytes]] = {}
        self._stores: dict[int, tuple[StartStore, list[int]]] = {}
        self._cancelled: set[int] = set()

    # The ladder

    def offer(self, namespace: bytes, key: bytes, ready: int, now: float) -> Offer | None:
        kept = self._kept.get(namespace, {})
        end = ready
        for text in self._texts(key)[ready:]:
            if text not in kept:
                break
            end += 1
        if not self._honest:
            end = self._rng.choice((end, end, self._rng.randint(ready, count(key))))
        return self._answer(Offer(TIER, ready, end) if end > ready else None)

    def keep(self, namespace: bytes, key: bytes, written: int, now: float) -> Offer | None:
        if written == 0 or (not self._honest and self._rng.random() < 0.4):
            return self._answer(None)
        kept = self._kept.get(namespace, {})
        begin = next((at for at, text in enumerate(self._texts(key)) if text not in kept), written)
        return self._answer(Offer(TIER, begin, written) if begin < written else None)

    def loaded(self, tier: str, asked: int, delivered: int, now: float) -> None:
        if tier != TIER or not 0 <= delivered <= asked:
            raise Corrupt(f"{tier} is said to have delivered {delivered} of {asked} tokens")

    def forget(self) -> None:
        self._kept.clear()

    def _answer(self, offer: Offer | None) -> Offer | None:
        self.answers.append(offer)
        return offer

    def _texts(self, key: bytes) -> list[int]:
        return [self._model.text(digest) for digest in self._model.digests(key)]

    # The mover

    @property
    def loads(self) -> list[int]:
        return list(self._loads)

    @property
    def stores(self) -> list[int]:
        return list(self._stores)

    def start_load(self, load: StartLoad, prompt: bytes) -> None:
        slots = slots_of(load.slots)
        if not 0 <= load.begin < load.end <= count(prompt) or len(slots) != load.end - load.begin:
            raise Corrupt(f"load of [{load.begin}, {load.end}) into {len(slots)} slots")
        self._loads[load.load] = (load, prompt)

    def cancel_load(self, cancel: CancelLoad) -> None:
        """It was asked to stop. Like a real one it may go on writing until it says that it has."""
        if cancel.load not in self._loads or cancel.load in self._cancelled:
            raise Corrupt(f"load {cancel.load} is cancelled and does not run")
        self._cancelled.add(cancel.load)

    def end_load(self, number: int) -> LoadDone | LoadFailed:
        """Write what was found, spoil the rest, and tell as much of it as the seed likes."""
        load, prompt = self._loads.pop(number)
        asked = load.end - load.begin
        slots = slots_of(load.slots)
        if number in self._cancelled:
            self._cancelled.discard(number)
            self._spoil(slots)
            return LoadDone(number, self._rng.choice((0, asked)))
        found = self._deliver(load, prompt, slots)
        if found == asked and not self._honest:
            return LoadDone(number, self._rng.choice((asked, asked, asked + 5)))
        if found == 0 and self._rng.random() < 0.7:
            return LoadFailed(number, "the tier does not answer")
        return LoadDone(number, found or self._rng.choice((0, -3)))

    def _deliver(self, load: StartLoad, prompt: bytes, slots: list[int]) -> int:
        """Write the leading part of what was asked for; the number of tokens."""
        asked = len(slots)
        kept = self._kept.get(load.namespace, {})
        wish = asked if self._honest else self._rng.choice((asked, asked, self._part(asked), 0))
        found = 0
        for text in self._texts(prompt)[load.begin : load.begin + wish]:
            if text not in kept:
                break
            self._model.memory.put(slots[found], kept[text])
            found += 1
        self._model.memory.belong(slots[:found], load.namespace)
        self._spoil(slots[found:])
        return found

    def _part(self, asked: int) -> int:
        return self._rng.randint(0, asked)

    def _spoil(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._model.memory.spoil(slot)

    def start_store(self, store: StartStore) -> None:
        if not 0 <= store.begin < store.end == len(store.tokens) // WIDTH:
            raise Corrupt(f"store of [{store.begin}, {store.end})")
        self._stores[store.store] = (store, self._read(store))

    def end_store(self, number: int) -> StoreDone:
        """What was read is what is there still: nobody took the pages in the meantime."""
        store, digests = self._stores.pop(number)
        slots = slots_of(store.slots)
        if [self._model.memory.get(slot) for slot in slots] != digests:
            raise Corrupt(f"store {number} read pages that changed under it")
        self._model.memory.belong(slots, store.namespace)
        kept = self._kept.setdefault(store.namespace, {})
        kept.update((self._model.text(digest), digest) for digest in digests)
        return StoreDone(number)

    def _read(self, store: StartStore) -> list[int]:
        expected = self._model.digests(store.tokens)[store.begin :]
        slots = slots_of(store.slots)
        if [self._model.memory.get(slot) for slot in slots] != expected:
            raise Corrupt(f"store {store.store} names tokens that its slots do not hold")
        return expected


class RecordedLadder:
    """Gives the answers another ladder gave, in their order."""

    def __init__(self, answers: list[Offer | None]) -> None:
        self._answers = deque(answers)

    def offer(self, namespace: bytes, key: bytes, ready: int, now: float) -> Offer | None:
        return self._answers.popleft()

    def keep(self, namespace: bytes, key: bytes, written: int, now: float) -> Offer | None:
        return self._answers.popleft()

    def loaded(self, tier: str, asked: int, delivered: int, now: float) -> None:
        pass

    def forget(self) -> None:
        pass
