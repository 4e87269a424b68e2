"""Two engines over the same weights, one with the prefix cache and one without, asked the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from headwater.engine.api import Headwater
from headwater.engine.asked import Prompt
from headwater.engine.loaded import LoadedModel
from headwater.engine.results import Choice, Result

# Two candidates closer than this, in logits, may change places with the order of additions.
TIE = 1e-3


class Difference(msgspec.Struct, frozen=True):
    """Where two answers part.

    token: the first that differs, counted from 0. gap: how close the two likeliest candidates were,
    in logits, where the answer without the cache took one of them. None when it had no choice to
    make there (one answer ended, the other went on), or did not take the likeliest but drew: how
    close a draw was, log-probabilities do not tell.
    """

    choice: int
    token: int
    gap: float | None

    @property
    def is_tie(self) -> bool:
        return self.gap is not None and self.gap <= TIE


class Row(msgspec.Struct, frozen=True):
    """One request, with and without the cache. Seconds are to the first token."""

    act: int
    who: str
    prompt: int
    cached: int
    computed: int
    generated: int
    with_cache: float
    without: float
    why: str
    answer: str
    difference: Difference | None

    @property
    def speedup(self) -> float:
        return self.without / self.with_cache


class Question(msgspec.Struct, frozen=True):
    """What one caller asks, under which name it is shown."""

    who: str
    prompt: Prompt
    domain: str = ""


class Pair:
    """Asks both engines, first the one, then the other, in turns."""

    def __init__(self, loaded: LoadedModel, kv_memory: str) -> None:
        self._with = Headwater(loaded, kv_memory=kv_memory)
        self._without = Headwater(loaded, kv_memory=kv_memory, cache="none")
        self._turn = 0

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for engine in (self._with, self._without):
            engine.close("drain" if kind is None else "cancel")

    @property
    def cached(self) -> Headwater:
        return self._with

    @property
    def uncached(self) -> Headwater:
        return self._without

    def ask(self, act: int, questions: Sequence[Question], **asked: Any) -> list[Row]:
        """Put all questions at once to one engine, then to the other; a row for each."""
        self._turn += 1
        engines = [self._with, self._without]
        if self._turn % 2:  # what a machine does to whoever comes first evens out
            engines.reverse()
        # Two candidates' log-probabilities tell how close a decision was.
        asked = {"temperature": 0.0, "logprobs": 2, **asked}
        results = {id(engine): _ask(engine, questions, asked) for engine in engines}
        pairs = zip(questions, results[id(self._with)], results[id(self._without)], strict=True)
        greedy = asked["temperature"] == 0
        return [_row(act, *each, greedy=greedy) for each in pairs]


def _ask(engine: Headwater, questions: Sequence[Question], asked: dict[str, Any]) -> list[Result]:
    running = [engine.submit(each.prompt, domain=each.domain, **asked) for each in questions]
    return [each.result() for each in running]


def _row(act: int, question: Question, ours: Result, plain: Result, *, greedy: bool) -> Row:
    report = ours.cache
    return Row(
        act=act,
        who=question.who,
        prompt=ours.usage.prompt_tokens,
        cached=ours.usage.cached_tokens,
        computed=report.sources.computed,
        generated=report.generated,
        with_cache=ours.timing.first_token,
        without=plain.timing.first_token,
        why=report.why.sentence,
        answer=ours.text,
        difference=_difference(ours.choices, plain.choices, greedy=greedy),
    )


def _difference(
    ours: Sequence[Choice], plain: Sequence[Choice], *, greedy: bool
) -> Difference | None:
    for one, other in zip(ours, plain, strict=True):
        for at, (a, b) in enumerate(zip_longest(one.tokens, other.tokens)):
            if a == b:
                continue
            if not greedy or a is None or b is None:
                return Difference(one.index, at, None)
            (_, best), (_, second) = other.logprobs[at].top[:2]
            return Difference(one.index, at, best - second)
    return None
