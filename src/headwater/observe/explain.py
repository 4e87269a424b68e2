"""From a request's account to what its caller is told: tokens by source, and why the rest missed.

Everything said here comes from the caller's own prompt and from KV of its own namespace. Who else
uses the engine does not show: an eviction names no request, only when it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from headwater.cache.tokens import Tokens
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
    """Why reuse ended at token `at` of the prompt, with the prompt's text around that point.

    not_looked_up: the request was cancelled before it began. A `Result` never says so.
    """

    kind: MissKind | Literal["not_looked_up"]
    at: int
    sentence: str
    before: str
    after: str


class Report(msgspec.Struct, frozen=True):
    """What the cache did for one request, all its choices together.

    recomputed: tokens computed again after a preemption, or for further choices where nothing is
        cached; `sources` does not count them again.
    """

    sources: Sources
    generated: int
    recomputed: int
    preemptions: int
    waits: Waits
    load_failure: str | None
    why: Why

    @property
    def reused(self) -> int:
        """Tokens of the prompt that were not computed."""
        each = self.sources
        return each.device + each.ram + each.disk + each.remote + each.approximate


def explain(accounts: Sequence[Account], prompt: Tokens, arrived: float, decode: Decode) -> Report:
    """Report on a request.

    accounts: those of its choices; the first one's holds the prompt, which all share. A choice that
    never had a sequence of its own brings an empty one, which adds nothing.
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
        why=why(first.miss, prompt, arrived, decode),
    )


def _sources(account: Account) -> Sources:
    # A tier of a name that is not listed is somebody's plug-in: not here, so remote.
    tier = account.tier if account.tier in ("ram", "disk") else "remote"
    return Sources(
        device=account.cached,
        ram=account.loaded if tier == "ram" else 0,
        disk=account.loaded if tier == "disk" else 0,
        remote=account.loaded if tier == "remote" else 0,
        computed=account.computed,
    )


def why(miss: Miss | None, prompt: Tokens, arrived: float, decode: Decode) -> Why:
    """A miss in words, for who asked for the prompt."""
    if miss is None:
        return Why("not_looked_up", 0, "It ended before anything was looked up.", "", "")
    before = decode(prompt[max(miss.at - AROUND, 0) : miss.at].tolist())
    after = decode(prompt[miss.at : miss.at + AROUND].tolist())
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
        case "not_shared":
            return "The request asked not to read the cache."
