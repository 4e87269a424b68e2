"""The account of a request: where its tokens came from, what it waited for, why the rest missed."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.cache.tree import Match

MissKind = Literal[
    "all_reused",
    "never_seen",
    "diverged",
    "evicted",
    "unfinished",
    "new_suffix",
    "not_shared",
]


class Miss(msgspec.Struct, frozen=True):
    """Why reuse ended at position `at` of the prompt.

    all_reused: it did not end. never_seen: not even the first token was known. diverged: other
    tokens were cached from here on. evicted: they were cached until `time` and gave way to request
    `by`. unfinished: they are being computed by another request, which was not waited for.
    new_suffix: nothing was ever cached behind this point. not_shared: the request asked not to
    read what is cached.
    """

    kind: MissKind
    at: int
    time: float | None = None
    by: int | None = None

    @classmethod
    def of(cls, match: Match, prompt_tokens: int) -> Miss:
        """Read the reason off a match."""
        if match.ready >= prompt_tokens:
            return cls("all_reused", prompt_tokens)
        if match.promised > match.ready:
            return cls("unfinished", match.ready)
        if match.known > match.ready:
            gone = cls._gone(match)
            return gone if gone is not None else cls("unfinished", match.ready)
        if match.known == 0 and not match.node.children:
            return cls("never_seen", 0)
        if match.inside is not None or match.node.children:
            return cls("diverged" if match.ready else "never_seen", match.ready)
        return cls("new_suffix", match.ready)

    @classmethod
    def _gone(cls, match: Match) -> Miss | None:
        for node in (match.stop, match.inside, match.node):
            if node is not None and node.gone is not None:
                return cls("evicted", match.ready, node.gone.time, node.gone.by)
        return None


class Account(msgspec.Struct):
    """Tokens of one choice by source, in tokens; waits in seconds.

    cached + loaded + computed = prompt tokens, for the first choice; the others share its prompt.
    What is computed again after a preemption is `recomputed`, so that no token counts twice.
    """

    prompt: int = 0
    cached: int = 0
    loaded: int = 0
    computed: int = 0
    recomputed: int = 0
    generated: int = 0
    preemptions: int = 0
    waited_queue: float = 0.0
    waited_promise: float = 0.0
    waited_load: float = 0.0
    tier: str | None = None
    load_failure: str | None = None
    miss: Miss | None = None
