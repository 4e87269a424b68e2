"""What a caller may ask of sampling, and the randomness behind it.

A drawn token is a function of its row's logits and of (seed, choice, position), never of what else
runs: the uniform number comes from hashing that triple, not from a generator that advances. Counter
based randomness is the idea of Salmon et al. 2011 ("Parallel random numbers: as easy as 1, 2, 3");
the hash is the standard library's, at one call a token speed is no matter.
"""

from __future__ import annotations

import math
import struct
from hashlib import blake2b

import msgspec

from headwater.errors import BadRequest

MOST_ALTERNATIVES = 20
"""The most alternatives with log-probabilities a caller may ask for, as in OpenAI's API."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to draw the tokens of one request. Raises BadRequest when a value makes no sense.

    temperature: 0 takes the likeliest token; so does anything under 1e-5, where dividing logits by
        it would leave the range of float32.
    top_k: draw among the k likeliest tokens. Tokens as likely as the k-th are all kept, here and in
        top_p, so that the result does not depend on how a sort breaks ties.
    top_p: draw among the likeliest tokens that together reach this probability, after top_k.
    seed: any integer; the same seed draws the same tokens from the same logits.
    logprobs: report the drawn token's log-probability and those of so many likeliest alternatives,
        by the model's own distribution, before temperature and cut. None reports nothing.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise BadRequest(f"temperature must be 0 or more, but is {self.temperature}.")
        if not 0 < self.top_p <= 1:
            raise BadRequest(f"top_p must lie in (0, 1], but is {self.top_p}.")
        if self.top_k is not None and self.top_k < 1:
            raise BadRequest(f"top_k must be 1 or more, but is {self.top_k}.")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_ALTERNATIVES:
            raise BadRequest(
                f"logprobs must lie in 0..{MOST_ALTERNATIVES}, but is {self.logprobs}."
            )

    @property
    def greedy(self) -> bool:
        return self.temperature < 1e-5


class TokenLogprobs(msgspec.Struct, frozen=True):
    """Natural log-probabilities at one position: of the drawn token, and of the likeliest ones as
    (token, log-probability), likeliest first."""

    drawn: float
    top: list[tuple[int, float]]


class Sampled(msgspec.Struct, frozen=True):
    """What a step drew, one entry for each of its samples, and how likely the prompts' own tokens
    were, one list for each of its scores."""

    tokens: list[int]
    logprobs: list[TokenLogprobs | None]
    scored: list[list[TokenLogprobs]] = []


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, the same for the same arguments everywhere."""
    width = max(8, (seed.bit_length() + 8) // 8)  # a seed of any size, sign included
    counter = struct.pack("<qq", choice, position) + seed.to_bytes(width, "little", signed=True)
    digest = blake2b(counter, digest_size=8, person=b"hw-sample").digest()
    return float((int.from_bytes(digest, "little") >> 11) * 2.0**-53)
