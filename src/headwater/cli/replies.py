"""What a server says, as far as the commands that talk to one read it.

Unknown fields are passed over: a command may be older than the server.
"""

from __future__ import annotations

import msgspec


class Cached(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """OpenAI's account of a request."""

    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: Cached = Cached()

    @property
    def cached(self) -> int:
        return self.prompt_tokens_details.cached_tokens


class Why(msgspec.Struct, frozen=True):
    """Why reuse of a prompt ended at token `at`, with the prompt's text around that point."""

    kind: str
    at: int
    sentence: str
    before: str = ""
    after: str = ""


class Cache(msgspec.Struct, frozen=True):
    why: Why


class Timing(msgspec.Struct, frozen=True):
    """Seconds on the server's clock from a request's arrival."""

    first_token: float
    total: float


class Told(msgspec.Struct, frozen=True):
    """The field `headwater`: an entry a prompt."""

    cache: list[Cache]
    timing: list[Timing]


class Message(msgspec.Struct, frozen=True):
    content: str | None = None


class Choice(msgspec.Struct, frozen=True):
    message: Message
    finish_reason: str | None = None


class Chat(msgspec.Struct, frozen=True):
    """An answer of `/v1/chat/completions`. created: seconds since 1970."""

    model: str
    created: int
    choices: list[Choice]
    usage: Usage
    headwater: Told | None = None

    @property
    def text(self) -> str:
        return "".join(choice.message.content or "" for choice in self.choices)


class PieceChoice(msgspec.Struct, frozen=True):
    delta: Message = Message()


class Piece(msgspec.Struct, frozen=True):
    """An event of the same, streamed; the last one has the usage."""

    choices: list[PieceChoice] = []
    usage: Usage | None = None
    headwater: Told | None = None

    @property
    def text(self) -> str:
        return "".join(choice.delta.content or "" for choice in self.choices)


class Explained(msgspec.Struct, frozen=True):
    """An answer of `/v1/cache/explain`."""

    prompt_tokens: int
    cached_tokens: int
    promised_tokens: int
    why: Why


class Model(msgspec.Struct, frozen=True):
    id: str
    max_model_len: int | None = None


class Models(msgspec.Struct, frozen=True):
    data: list[Model]


class Caller(msgspec.Struct, frozen=True):
    """An answer of `/v1/caller`: who the server takes a key's holder for."""

    tenant: str | None = None
    admin: bool = False
    open: bool = False
