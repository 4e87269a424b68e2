"""What the shapes share: sampling fields, usage, log-probabilities, the cache's report."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from headwater.engine.results import End, Result, Usage
from headwater.engine.sampling import TokenLogprobs
from headwater.server.caller import Controls

BytesOf = Callable[[int], bytes]


class Body(BaseModel):
    """Fields of any request. What a body has beside its fields is looked at by `fields.py`."""

    model_config = ConfigDict(extra="allow", strict=False)

    model: str | None = Field(None, description="Any name but that of the served model is a 404.")
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, description="-1 and 0 mean all tokens.")
    stream: bool | None = None
    headwater: Controls | None = Field(None, description="What the cache may do, and tell.")
    cache_salt: str | None = Field(None, max_length=256, description="As headwater.salt.")
    priority: int | None = Field(None, gt=-500, lt=500, description="As headwater.priority.")

    def controls(self) -> Controls:
        """What is said about the cache, by either name."""
        named = {
            name: value
            for name, value in (("salt", self.cache_salt), ("priority", self.priority))
            if value is not None
        }
        return (self.headwater or Controls()).model_copy(update=named)

    def sampling(self) -> dict[str, Any]:
        """The engine's keywords for how tokens are drawn."""
        named = {"temperature": self.temperature, "top_p": self.top_p}
        if self.top_k is not None and self.top_k > 0:
            named["top_k"] = self.top_k
        return {name: value for name, value in named.items() if value is not None}


class StreamOptions(BaseModel):
    """OpenAI's: a last event with the usage."""

    model_config = ConfigDict(extra="ignore")

    include_usage: bool | None = None


class OpenAIBody(Body):
    """Fields that OpenAI's two completion APIs share, and vLLM's beside them."""

    n: int | None = Field(None, ge=1, le=128, description="Answers to a prompt; 1 if not given.")
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    seed: int | None = None
    max_tokens: int | None = Field(None, ge=0)
    ignore_eos: bool | None = None
    stream_options: StreamOptions | None = None

    def keywords(self) -> dict[str, Any]:
        """The engine's keywords, `max_tokens` and log-probabilities left out."""
        named: dict[str, Any] = self.sampling() | {"n": self.answers}
        if self.ignore_eos:
            named["ignore_eos"] = True
        if self.stop:
            named["stop"] = self.stop
        if self.stop_token_ids:
            named["stop_token_ids"] = self.stop_token_ids
        if self.seed is not None:
            named["seed"] = self.seed
        return named

    @property
    def answers(self) -> int:
        """To each prompt."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(12)}"


def now() -> int:
    return int(time.time())


def usage_of(usages: Sequence[Usage]) -> dict[str, Any]:
    """OpenAI's usage, of all prompts of a request together."""
    prompt = sum(each.prompt_tokens for each in usages)
    completion = sum(each.completion_tokens for each in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in usages)},
    }


def report_of(ends: Sequence[Result | End]) -> dict[str, Any]:
    """What the cache did, one entry a prompt, as the field `headwater` has it."""
    return {
        "cache": [msgspec.to_builtins(end.cache) for end in ends],
        "timing": [msgspec.to_builtins(end.timing) for end in ends],
        "seed": ends[0].seed,
    }


def token_text(bytes_of: BytesOf, token: int) -> str:
    return bytes_of(token).decode(errors="replace")


def chat_logprob(bytes_of: BytesOf, token: int, found: TokenLogprobs) -> dict[str, Any]:
    """OpenAI's entry for a drawn token."""
    return _entry(bytes_of, token, found.drawn) | {
        "top_logprobs": [_entry(bytes_of, each, value) for each, value in found.top]
    }


def _entry(bytes_of: BytesOf, token: int, logprob: float) -> dict[str, Any]:
    raw = bytes_of(token)
    return {"token": raw.decode(errors="replace"), "logprob": logprob, "bytes": list(raw)}
