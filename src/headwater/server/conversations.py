"""Conversations that go on by name: `previous_response_id` without sending, or tokenising, again.

A turn keeps its tokens as they were drawn. Text that becomes tokens a second time may become
others, and from the first other token on nothing cached fits. So the next turn's prompt is the old
tokens and, behind them, only what the template adds:

    rendered   |  the old prompt        |  the answer  |  the rest: end of turn, new message ... |
    tokens     |  as they were computed | as drawn     |  made from the rest                      |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from headwater.cache.tokens import pack
from headwater.engine.tokenizer import Tokenizer

MOST_TURNS = 10_000
MOST_BYTES = 256 * 2**20


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """
    messages: all of the conversation, this answer included. rendered: the prompt as text.
    prompt, answer: packed token ids. text: the answer's.
    body: what the API said, to be said again.
    """

    tenant: str
    messages: list[dict[str, Any]]
    rendered: str
    prompt: bytes
    answer: bytes
    text: str
    body: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return 2 * len(self.rendered) + len(self.prompt) + 8 * len(self.text) + 1024


class Conversations:
    """The last turns of all tenants, each found by its own tenant only. For one event loop."""

    def __init__(self, most: int = MOST_TURNS, most_bytes: int = MOST_BYTES) -> None:
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def keep(self, name: str, turn: Turn) -> None:
        """Remember a turn, forgetting the oldest ones when there are too many."""
        self._turns[name] = turn
        self._bytes += turn.size
        while len(self._turns) > self._most or self._bytes > self._most_bytes:
            _, old = self._turns.popitem(last=False)
            self._bytes -= old.size

    def find(self, name: str, tenant: str) -> Turn | None:
        turn = self._turns.get(name)
        return turn if turn is not None and turn.tenant == tenant else None

    def drop(self, name: str, tenant: str) -> bool:
        """Forget a turn; False when the tenant has none of this name."""
        turn = self.find(name, tenant)
        if turn is None:
            return False
        del self._turns[name]
        self._bytes -= turn.size
        return True


class Rendered(msgspec.Struct, frozen=True):
    """A prompt as text and as packed tokens. continues: it goes on from a turn's own tokens."""

    text: str
    tokens: bytes
    continues: bool


def render(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    room: int,
    turn: Turn | None,
) -> Rendered:
    """The prompt of a conversation, on top of a turn's tokens where the template allows it.

    room: most tokens. Raises BadRequest.
    """
    text = tokenizer.render(messages, tools=tools, options=options)
    if turn is not None:
        said = turn.rendered + turn.text
        drawn = np.frombuffer(turn.answer, np.int32).tolist()
        if text.startswith(said) and tokenizer.decode(drawn) == turn.text:
            while drawn and not tokenizer.bytes_of(drawn[-1]):  # the rest writes the end itself
                drawn.pop()
            rest = tokenizer.encode_rendered(text[len(said) :], room)
            return Rendered(text, turn.prompt + pack(drawn) + pack(rest), True)
    return Rendered(text, pack(tokenizer.encode_rendered(text, room)), False)
