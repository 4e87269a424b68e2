"""What a caller may ask of a request, by keyword, and how it is checked."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np

from headwater.cache.tokens import Tokens
from headwater.engine.keywords import read_keywords
from headwater.engine.sampling import SamplingParams
from headwater.engine.tokenizer import Message, Tokenizer, require_unicode
from headwater.errors import BadRequest, PromptTooLong

Prompt = str | Sequence[int] | np.ndarray | Sequence[Message]
"""Text, token ids, or chat messages, which the model's template renders."""

_NO_PROMPT = "A prompt is a text, a list of token ids, or a list of chat messages."
_IDS = "Token ids"
_IDS_OF_TEXT = "The text has tokens that were added behind the model's own; token ids"

MOST_STOPS = 16
LONGEST_STOP = 256
"""Characters."""


TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Asked(TypedDict, total=False):
    """The keywords of `Headwater.generate` and its relatives; `Wanted` says what they mean.

    Type checkers take the types of keywords from a TypedDict alone, and msgspec takes defaults from
    a struct alone, so both stand here; a test holds them to the same names.
    """

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
    reads: bool
    stores: bool
    prompt_logprobs: bool
    tools: Sequence[Mapping[str, Any]]
    template_options: Mapping[str, Any]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """
    max_tokens: most tokens of one answer; it also ends where the model's context does.
    temperature, top_p, top_k, logprobs: see `SamplingParams`.
    seed: equal seeds draw equal answers from equal logits; None draws one.
    n: answers to the one prompt.
    stop: an answer ends before the first of these texts, 16 of 256 characters at most.
    stop_token_ids: an answer ends with one of these tokens, whose text is not shown.
    ignore_eos: go on behind the model's own end tokens.
    domain: who may share KV: derived from the authenticated tenant, never chosen by them.
    salt: narrows the domain, as its caller likes.
    priority: higher runs first.
    reads: cached KV may be reused. stores: what is computed may be reused by others; where not,
        further answers compute the prompt anew.
    prompt_logprobs: log-probabilities of the prompt's own tokens, with `logprobs` alternatives;
        such a request reads nothing from the cache, which keeps no logits.
    tools, template_options: for chat messages: what the model's template is given beside them.
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
    reads: bool = True
    stores: bool = True
    prompt_logprobs: bool = False
    tools: tuple[dict[str, Any], ...] = ()
    template_options: dict[str, Any] = {}

    def sampling(self) -> SamplingParams:
        """How to draw tokens. Raises BadRequest for a value that makes no sense."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=secrets.randbits(53) if self.seed is None else self.seed,
            logprobs=self.logprobs,
        )

    def stop_strings(self) -> tuple[str, ...]:
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not all(stops):
            raise BadRequest("A stop string is empty; an answer would end before it began.")
        # They are looked for between the steps of everybody.
        if len(stops) > MOST_STOPS or any(len(stop) > LONGEST_STOP for stop in stops):
            raise BadRequest(
                f"At most {MOST_STOPS} stop strings of {LONGEST_STOP} characters are looked for."
            )
        return stops


def read_wanted(asked: Mapping[str, Any]) -> Wanted:
    """Check keywords. Raises TypeError for one that is unknown, BadRequest for a wrong value."""
    wanted = read_keywords(asked, Wanted, BadRequest, "keyword of a request")
    for text in (wanted.domain, wanted.salt, *wanted.stop_strings()):
        require_unicode(text)
    return wanted


def read_prompt(
    prompt: Prompt, wanted: Wanted, tokenizer: Tokenizer, vocabulary: int, context: int
) -> Tokens:
    """The token ids of a prompt. Raises BadRequest when it is none the model could take.

    context: most tokens the engine takes; what is seen to be longer is not even read.
    """
    if isinstance(prompt, str):
        return _known(np.asarray(tokenizer.encode(prompt, context)), vocabulary, _IDS_OF_TEXT)
    if isinstance(prompt, Sequence) and len(prompt) and isinstance(prompt[0], Mapping):
        tokens = tokenizer.encode_chat(
            prompt,  # type: ignore[arg-type]
            context,
            tools=wanted.tools,
            options=wanted.template_options,
        )
        return _known(np.asarray(tokens), vocabulary, _IDS_OF_TEXT)
    return _known(_ids(prompt, context), vocabulary, _IDS)


def _known(ids: np.ndarray, vocabulary: int, what: str) -> Tokens:
    """Ids as the engine keeps them. Raises BadRequest when the model has no row for one."""
    if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise BadRequest(f"{what} must lie in [0, {vocabulary}), the model's vocabulary.")
    return ids.astype(np.int32)


def _ids(prompt: object, context: int) -> np.ndarray:
    """Token ids as an array of integers. Raises BadRequest for anything else."""
    if not isinstance(prompt, Sequence | np.ndarray):
        raise BadRequest(_NO_PROMPT)
    try:
        if len(prompt) > context:
            raise PromptTooLong(
                f"The prompt has {len(prompt)} tokens, but the model's context is {context}; "
                "shorten the prompt."
            )
        ids = np.asarray(prompt)
    except TypeError:  # an array that is one number has no length
        ids = np.asarray(0)
    except ValueError:  # a ragged list
        ids = np.asarray(0)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise BadRequest(_NO_PROMPT)
    return ids
