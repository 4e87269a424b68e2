"""What may be asked of an engine's cache: explain, prewarm, pin, flush, show.

Each acts within one sharing domain, and tells only what is its own.
"""

from __future__ import annotations

import itertools
import math
import secrets
import time
from collections.abc import Callable

import msgspec

from headwater.cache.tokens import count, unpack
from headwater.engine.engine import Engine
from headwater.engine.tokenizer import Tokenizer
from headwater.errors import BadRequest
from headwater.observe.explain import Why, why
from headwater.observe.tree_view import NodeView, view_tree
from headwater.schedule.control import Forecast, HoldView
from headwater.schedule.events import Flushed, FlushPrefixes, Held, HoldPrefix, LetGo
from headwater.schedule.machine import Machine

LONGEST_PIN = 30 * 24 * 3600.0
"""Seconds."""


class Explained(msgspec.Struct, frozen=True):
    """What a prompt would find if it came now.

    cached: tokens that need not be computed. promised: tokens up to which others are at it.
    """

    prompt_tokens: int
    cached_tokens: int
    promised_tokens: int
    why: Why


class Receipt(msgspec.Struct, frozen=True):
    """What is pinned: tokens from the prompt's start, their bytes, for so many seconds at most.

    A pin ends early when requests could not run without its memory, when its prefix is flushed,
    and when weights are replaced; `pins` tells which are left.
    """

    id: int
    prompt_tokens: int
    pinned_tokens: int
    bytes: int
    seconds: float


class Flush(msgspec.Struct, frozen=True):
    """Tokens whose KV is gone, and tokens that stay because requests use them now."""

    flushed_tokens: int
    in_use_tokens: int


class CacheControl:
    """The cache of one engine. Prompts are packed token ids."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, page_bytes: int) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._page_bytes = page_bytes
        self._ids = itertools.count(1)

    def explain(self, prompt: bytes, domain: str = "", salt: str = "") -> Explained:
        """What a prompt would find. Changes nothing, not even a time of last use."""
        now = time.monotonic()
        found: Forecast = self._engine.look(lambda machine: machine.forecast(prompt, domain, salt))
        reason = why(found.miss, unpack(prompt), now, self._tokenizer.show)
        waits = found.promised if found.miss.kind == "unfinished" else found.ready
        return Explained(count(prompt), found.ready, waits, reason)

    def pin(
        self, prompt: bytes, seconds: float, budget: int | None, domain: str = "", salt: str = ""
    ) -> Receipt:
        """Keep what is cached of a prompt for a while.

        budget: bytes that all pins of the domain may take together; None for half of the pool.
        Raises BadRequest for a time that is none.
        """
        if not 0 < seconds <= LONGEST_PIN or math.isnan(seconds):
            raise BadRequest(f"A pin lasts up to {LONGEST_PIN:.0f} seconds, not {seconds}.")
        number = secrets.randbits(53)  # counted up, it would tell how much others pin
        pages = self._pages(budget)
        held = self._engine.order(
            HoldPrefix(number, prompt, time.monotonic() + seconds, pages, domain, salt)
        )
        assert isinstance(held, Held)
        took = held.pages * self._page_bytes
        return Receipt(number, count(prompt), held.tokens, took, seconds if held.tokens else 0.0)

    def pins(self, domain: str = "") -> list[Receipt]:
        """The pins of a domain that hold now."""
        now = time.monotonic()
        views: list[HoldView] = self._engine.look(lambda machine: machine.holds_of(domain))
        return [
            Receipt(v.hold, v.tokens, v.tokens, v.pages * self._page_bytes, max(v.until - now, 0.0))
            for v in views
        ]

    def unpin(self, pin: int, domain: str = "") -> bool:
        """End a pin of a domain; False when it has none of this name."""
        if all(each.id != pin for each in self.pins(domain)):
            return False
        self._engine.order(LetGo(pin))
        return True

    def flush(self, prefix: bytes, domain: str = "", salt: str | None = None) -> Flush:
        """Forget a domain's prompts that begin with a prefix; all of them when it is empty.

        salt: None for every salt.
        """
        done = self._engine.order(FlushPrefixes(next(self._ids), prefix, domain, salt))
        assert isinstance(done, Flushed)
        return Flush(done.tokens, done.in_use)

    def tree(self, limit: int = 200) -> list[NodeView]:
        """The most used nodes of all domains: for an operator, not for tenants."""
        return self._engine.look(_viewer(limit, time.monotonic()))

    def _pages(self, budget: int | None) -> int:
        most: int = self._engine.look(lambda machine: machine.cache.pool.pages // 2)
        return most if budget is None else min(most, budget // self._page_bytes)


def _viewer(limit: int, now: float) -> Callable[[Machine], list[NodeView]]:
    return lambda machine: view_tree(machine.cache, machine.domain_of(), limit, now)
