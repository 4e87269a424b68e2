"""What a caller gets: pieces while an answer is made, the result when it is complete."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.engine.sampling import TokenLogprobs
from headwater.observe.explain import Report

FinishReason = Literal["stop", "length"]


class Usage(msgspec.Struct, frozen=True):
    """Tokens: of the prompt, of those the ones that were cached, and of all answers together."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Timing(msgspec.Struct, frozen=True):
    """Seconds from the caller's call, before its prompt became tokens, to the first token of any
    choice, and to the end of the last."""

    first_token: float
    total: float


class End(msgspec.Struct, frozen=True):
    """What is known when all choices of a request are complete."""

    usage: Usage
    cache: Report
    timing: Timing
    seed: int
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()


class Piece(msgspec.Struct, frozen=True):
    """Some more of one choice.

    text: whole characters, with nothing that could still become a stop string; may be empty.
    tokens, logprobs: what was drawn, one entry a token; `logprobs` is empty unless asked for.
    finish_reason: set on the last piece of a choice. end: set on the last piece of the request.
    """

    choice: int
    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    end: End | None = None


class Choice(msgspec.Struct):
    """One answer. `tokens` holds all that were drawn, the one it stopped at included."""

    index: int
    text: str = ""
    tokens: list[int] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    finish_reason: FinishReason | None = None


class Result(msgspec.Struct, frozen=True):
    """A complete request: its answers, and what its cache did.

    seed: the one that was given, or else drawn: with it the same answers can be drawn again.
    prompt_logprobs: of the prompt's tokens from the second on, when they were asked for.
    """

    choices: list[Choice]
    usage: Usage
    cache: Report
    timing: Timing
    seed: int
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()

    @property
    def text(self) -> str:
        """The first answer."""
        return self.choices[0].text


class Assembly:
    """Puts the pieces of a request together."""

    def __init__(self, choices: int) -> None:
        self._choices = [Choice(index) for index in range(choices)]
        self._texts: list[list[str]] = [[] for _ in range(choices)]
        self._end: End | None = None

    @property
    def is_complete(self) -> bool:
        return self._end is not None

    def add(self, piece: Piece) -> None:
        choice = self._choices[piece.choice]
        self._texts[piece.choice].append(piece.text)
        choice.tokens += piece.tokens
        choice.logprobs += piece.logprobs
        choice.finish_reason = piece.finish_reason
        self._end = piece.end

    def result(self) -> Result:
        """The result of a request that is complete."""
        end = self._end
        assert end is not None
        for choice, texts in zip(self._choices, self._texts, strict=True):
            choice.text = "".join(texts)
        return Result(
            self._choices, end.usage, end.cache, end.timing, end.seed, end.prompt_logprobs
        )
