"""The oracle of the engine: the prefix cache must not change what a model says.

The same greedy requests go to an engine with the cache and to one without. Up to the first token
in which two answers differ, their log-probabilities must agree; and they may differ only where
the two best candidates were so close that the order of additions decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.engine.api import Headwater
from headwater.engine.asked import Prompt
from headwater.engine.results import Choice, Result

CLOSE = 1e-3
"""Of two candidates' log-probabilities, which differ as their logits do."""


@dataclass
class Verdict:
    """tokens: how many were compared. ties: differences between candidates that were CLOSE.
    wrong: other differences, as (answer, token, gap). apart: largest difference of a
    log-probability."""

    tokens: int = 0
    ties: int = 0
    wrong: list[tuple[int, int, float]] = field(default_factory=list)
    apart: float = 0.0

    @property
    def holds(self) -> bool:
        return self.tokens > 0 and not self.wrong and self.apart < CLOSE


def compare(verdict: Verdict, answer: int, ours: Choice, plain: Choice) -> None:
    """Compare one answer, token by token, up to the first difference."""
    assert ours.logprobs is not None and plain.logprobs is not None
    rows = zip(ours.tokens, plain.tokens, ours.logprobs, plain.logprobs, strict=False)
    for at, (a, b, ours_here, plain_here) in enumerate(rows):
        verdict.tokens += 1
        verdict.apart = max(verdict.apart, abs(ours_here.top[0][1] - plain_here.top[0][1]))
        if a != b:
            gap = plain_here.top[0][1] - plain_here.top[1][1]
            if gap < CLOSE:
                verdict.ties += 1
            else:
                verdict.wrong.append((answer, at, gap))
            return
    assert len(ours.tokens) == len(plain.tokens)


def ask(hw: Headwater, prompts: Sequence[Prompt], tokens: int) -> list[Result]:
    """All prompts at once; their only answers, greedily drawn."""
    running = [
        hw.submit(each, max_tokens=tokens, temperature=0.0, logprobs=2, ignore_eos=True)
        for each in prompts
    ]
    return [each.result() for each in running]
