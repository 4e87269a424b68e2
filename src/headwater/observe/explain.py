"""From a request's account to what its caller is told: tokens by source, and why the rest missed.

Everything said here comes from the caller's own prompt and from KV of its own namespace. Who else
uses the engine does not show: an eviction names no request, only when it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headwater.schedule.account import Account, Miss, MissKind

AROUND = 12
"""Tokens of the prompt shown on each side of the point where reuse ended."""

Decode = Callable[[Sequence[int]], str]


class Sources(msgspec.Struct, frozen=True):
    """Where the prompt's tokens came from; they add up to the prompt."""

    device: int = 0
    ram: int = 0
    disk: int = 0
    remote: int = 0
    computed: int = 0
    approximate: int = 0


class Waits(msgspec.Struct, frozen=True):
    """Seconds: for room, for KV that another request was computing, for KV that was loaded."""

    queue: float = 0.0
    promise: float = 0.0
    load: float = 0.0


class Why(msgspec.Struct, frozen=True):
    """Why reuse ended at token `at` of the prompt, with the prompt's text around that point."""

    kind: MissKind
    at: int
    sentence: str
    before: str
    after: str


class Report(msgspec.Struct, frozen=True):
    """What the cache did for one request, all its choices together.

    recomputed: tokens computed again after a preemption, which `sources` does not count again.
    why: None for a request that ended before anything was looked up.
    """

    sources: Sources
    generated: int
    recomputed: int
    preemptions: int
    waits: Waits
    load_failure: str | None
    why: Why | None

    @property
    def reused(self) -> int:
        """Tokens of the prompt that were not computed."""
        each = self.sources
        return each.device + each.ram + each.disk + each.remote + each.approximate


def explain(
    accounts: Sequence[Account], prompt: Sequence[int], arrived: float, decode: Decode
) -> Report:
    """Report on a request.

    accounts: those of its choices; the first one's holds the prompt, which all share.
    arrived: when it did, on the clock of the machine.
    """
    first = accounts[0]
    return Report(
        sources=_sources(first),
        generated=sum(each.generated for each in accounts),
        recomputed=sum(each.recomputed for each in accounts),
        preemptions=sum(each.preemptions for each in accounts),
        waits=Waits(first.waited_queue, first.waited_promise, first.waited_load),
        load_failure=first.load_failure,
        why=None if first.miss is None else _why(first.miss, prompt, arrived, decode),
    )


def _sources(account: Account) -> Sources:
    loaded = {} if account.tier is None else {account.tier: account.loaded}
    return Sources(device=account.cached, computed=account.computed, **loaded)


def _why(miss: Miss, prompt: Sequence[int], arrived: float, decode: Decode) -> Why:
    before = decode(prompt[max(miss.at - AROUND, 0) : miss.at])
    after = decode(prompt[miss.at : miss.at + AROUND])
    sentence = _sentence(miss, arrived)
    if miss.kind == "diverged":
        sentence += f" It goes on with {after!r} after {before!r}."
    return Why(miss.kind, miss.at, sentence, before, after)


def _sentence(miss: Miss, arrived: float) -> str:
    match miss.kind:
        case "all_reused":
            return "All of it was cached; its last token runs again to draw the next."
        case "never_seen":
            return "Nothing that begins like it was cached."
        case "diverged":
            return f"Up to token {miss.at} it was cached; from there on other tokens were."
        case "evicted":
            ago = "" if miss.time is None else f" {max(arrived - miss.time, 0.0):.1f} s before"
            return f"From token {miss.at} on it was cached, but evicted{ago} to make room."
        case "unfinished":
            return f"From token {miss.at} on another request was still computing it."
        case "new_suffix":
            return f"Up to token {miss.at} it was cached; nothing ever followed there."
