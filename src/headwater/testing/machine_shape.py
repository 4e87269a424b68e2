"""How big the world is in which a machine is driven, and the machine that goes into it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

from headwater.cache.listener import Listener
from headwater.cache.pages import PagePool
from headwater.cache.policies import policy_named
from headwater.cache.shares import Shares
from headwater.schedule.ladder import Ladder
from headwater.schedule.machine import Machine
from headwater.schedule.order import Order
from headwater.schedule.settings import Settings
from headwater.testing.fake_model import Language, watched


@dataclass(frozen=True)
class Shape:
    """How big the world is in which the events happen."""

    page: int = 4
    pages: int = 40
    ghost_tokens: int | None = None
    policy: str = "lru"
    settings: Settings = field(
        default_factory=lambda: Settings(context=60, running=4, step_tokens=16, patience=3)
    )
    namespaces: int = 2
    language: Language = field(default_factory=lambda: Language(3))
    most_choices: int = 3
    tier: bool = True
    weights: bool = True
    cancels: float = 0.15
    control: bool = True
    floor: int = 0  # pages of domain "a" that others have to leave

    @classmethod
    def drawn(cls, rng: random.Random) -> Shape:
        page = rng.choice((1, 4, 4, 16))
        pages = rng.choice((7, 7, 12, 40, 200))
        running = rng.choice((1, 2, 4, 8))
        settings = Settings(
            context=rng.choice((2 * page + 3, 40, 40, 90)),
            running=running,
            step_tokens=max(running, rng.choice((8, 16, 64))),
            patience=rng.choice((1, 3, 10)),
            order=rng.choice(list(Order)),
            growth_pages=rng.choice((0, 2)),
        )
        return cls(
            page=page,
            pages=pages,
            ghost_tokens=rng.choice((0, 4 * page, None)),
            settings=settings,
            namespaces=rng.choice((1, 2, 4)),
            language=Language(rng.choice((2, 3, 50))),
            most_choices=min(running, rng.choice((1, 3))),
            tier=rng.random() < 0.5,
            weights=rng.random() < 0.4,
            cancels=rng.choice((0.0, 0.15, 0.4)),
            control=rng.random() < 0.5,
            floor=rng.choice((0, 0, pages // 3)),
        )


def namespace_of(epoch: str, domain: str, salt: str) -> bytes:
    """Readable, so that a failure can be read."""
    return f"{epoch}/{domain}/{salt}".encode()


def machine_of(shape: Shape, pool: PagePool, watcher: Listener, ladder: Ladder) -> Machine:
    another = partial(policy_named, shape.policy)
    return Machine(
        pool,
        Shares(another(), {"a": shape.floor} if shape.floor else {}, another),
        namespace_of,
        shape.settings,
        epoch="w0",
        ladder=ladder,
        cache_class=watched(watcher, shape.ghost_tokens),
    )
