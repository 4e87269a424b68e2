"""What a caller may ask of a request, by keyword, and how it is checked."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np

from headwater.cache.tokens import Tokens
from headwater.engine.facts import ModelFacts
from headwater.engine.sampling import SamplingParams
from headwater.engine.tokenizer import Message, Tokenizer, require_unicode
from headwater.errors import BadRequest

Prompt = str | Sequence[int] | np.ndarray | Sequence[Message]
"""Text, token ids, or chat messages, which the model's template renders."""

_NO_PROMPT = "A prompt is a text, a list of token ids, or a list of chat messages."


TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Asked(TypedDict, total=False):
    """The keywords of `Headwater.generate` and its relatives; `Wanted` says what they mean."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int | None
    seed: int | None
    n: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    logprobs: int | None
    domain: str
    salt: str
    priority: int


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """
    max_tokens: most tokens of one answer; it also ends where the model's context does.
    temperature, top_p, top_k, logprobs: see `SamplingParams`.
    seed: equal seeds draw equal answers; None draws one.
    n: answers to the one prompt.
    stop: an answer ends before the first of these texts.
    stop_token_ids: an answer ends with one of these tokens, whose text is not shown.
    ignore_eos: go on behind the model's own end tokens.
    domain: who may share KV: derived from the authenticated tenant, never chosen by them.
    salt: narrows the domain, as its caller likes.
    priority: higher runs first.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    n: int = 1
    stop: str | tuple[str, ...] = ()
    stop_token_ids: tuple[TokenId, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    domain: str = ""
    salt: str = ""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] = 0

    def sampling(self) -> SamplingParams:
        """How to draw tokens. Raises BadRequest for a value that makes no sense."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=secrets.randbits(63) if self.seed is None else self.seed,
            logprobs=self.logprobs,
        )

    def stop_strings(self) -> tuple[str, ...]:
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not all(stops):
            raise BadRequest("A stop string is empty; an answer would end before it began.")
        return stops


def read_wanted(asked: Mapping[str, Any]) -> Wanted:
    """Check keywords. Raises TypeError for one that is unknown, BadRequest for a wrong value."""
    for name in asked:
        if name not in Wanted.__struct_fields__:
            raise TypeError(f"{name!r} is no keyword of a request")
    try:
        wanted = msgspec.convert(dict(asked), Wanted)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise BadRequest(f"{where.rstrip('`')}: {what}.") from error
    for text in (wanted.domain, wanted.salt, *wanted.stop_strings()):
        require_unicode(text)
    return wanted


def read_prompt(prompt: Prompt, tokenizer: Tokenizer, facts: ModelFacts) -> Tokens:
    """The token ids of a prompt. Raises BadRequest when it is none."""
    if isinstance(prompt, str):
        return np.asarray(tokenizer.encode(prompt), np.int32)
    if not isinstance(prompt, Sequence | np.ndarray):
        raise BadRequest(_NO_PROMPT)
    if len(prompt) and isinstance(prompt[0], Mapping):
        return np.asarray(tokenizer.encode_chat(prompt), np.int32)  # type: ignore[arg-type]
    try:
        ids = np.asarray(prompt)
    except ValueError:  # a ragged list
        ids = np.asarray(0)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise BadRequest(_NO_PROMPT)
    if ids.size and not 0 <= ids.min() <= ids.max() < facts.vocabulary:
        raise BadRequest(f"Token ids must lie in [0, {facts.vocabulary}), the model's vocabulary.")
    return ids.astype(np.int32)
