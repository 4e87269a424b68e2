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

    def __init__(self, rng: random.Random, model: FakeModel) -> None:
        self.answers: list[Offer | None] = []
        self._rng = rng
        self._model = model
        self._kept: dict[bytes, dict[int, int]] = {}  # namespace -> digest of the text -> of KV
        self._loads: dict[int, tuple[StartLoad, bytes]] = {}
        self._stores: dict[int, tuple[StartStore, list[int]]] = {}
        self._cancelled: set[int] = set()

    # The ladder

    def offer(self, namespace: bytes, key: bytes, ready: int, now: float) -> Offer | None:
        return self._answer(TIER, ready, self.offers(namespace, key, ready))

    def offers(self, namespace: bytes, key: bytes, ready: int) -> int:
        """Up to where it says it can load: what it has, or anything at all."""
        has = self.has(namespace, key, ready)
        return self._rng.choice((has, has, self._rng.randint(ready, count(key))))

    def has(self, namespace: bytes, key: bytes, begin: int) -> int:
        """Up to where it has the KV of `key` from `begin` on."""
        kept = self._kept.get(namespace, {})
        texts = self._texts(key)[begin:]
        return begin + next((at for at, t in enumerate(texts) if t not in kept), len(texts))

    def keep(self, namespace: bytes, key: bytes, written: int, now: float) -> Offer | None:
        end = written if self.wants() else 0
        return self._answer(TIER, self.has(namespace, key[: end * WIDTH], 0), end)

    def wants(self) -> bool:
        """Whether it keeps what it is shown."""
        return self._rng.random() < 0.6

    def loaded(self, tier: str, asked: int, delivered: int, now: float) -> None:
        if tier != TIER or not 0 <= delivered <= asked:
            raise Corrupt(f"{tier} is said to have delivered {delivered} of {asked} tokens")

    def forget(self) -> None:
        self._kept.clear()

    def _answer(self, tier: str, begin: int, end: int) -> Offer | None:
        self.answers.append(Offer(tier, begin, end) if begin < end else None)
        return self.answers[-1]

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
        """Whole, short, failed, or with a length that makes no sense."""
        asked = self._asked(number)
        wish = self._rng.choice((asked, asked, self._rng.randint(0, asked), 0))
        if wish == 0:
            return self.fail(number)
        done = self.deliver_load(number, wish)
        if done.tokens == asked:
            return LoadDone(number, self._rng.choice((asked, asked, asked + 5)))
        return LoadDone(number, done.tokens or self._rng.choice((0, -3)))

    def deliver_load(self, number: int, tokens: int) -> LoadDone:
        """Write the leading `tokens` as far as they are kept here, and spoil the rest."""
        load, prompt = self._loads.pop(number)
        slots = slots_of(load.slots)
        if number in self._cancelled:
            self._spoil(slots)
            return LoadDone(number, tokens)
        end = min(self.has(load.namespace, prompt, load.begin), load.begin + tokens)
        kept = self._kept.get(load.namespace, {})
        texts = self._texts(prompt)[load.begin : end]
        for slot, text in zip(slots, texts, strict=False):
            self._model.memory.put(slot, kept[text])
        self._model.memory.belong(slots[: len(texts)], load.namespace)
        self._spoil(slots[len(texts) :])
        return LoadDone(number, len(texts))

    def fail(self, number: int) -> LoadFailed:
        load, _ = self._loads.pop(number)
        self._spoil(slots_of(load.slots))
        return LoadFailed(number, "the tier does not answer")

    def _asked(self, number: int) -> int:
        load, _ = self._loads[number]
        return load.end - load.begin

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
