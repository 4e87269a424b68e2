"""Conversations that go on by name: `previous_response_id` without sending, or tokenising, again.

A turn keeps its tokens as they were drawn. Text that becomes tokens a second time may become
others, and from the first other token on nothing cached fits. So the next turn's prompt is the old
tokens and, behind them, only what the template adds:

    rendered   |  the old prompt        |  the answer  |  the rest: end of turn, new message ... |
    tokens     |  as they were computed | as drawn     |  made from the rest                      |
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from headwater.cache.tokens import pack
from headwater.engine.tokenizer import Tokenizer

MOST_BYTES = 256 * 2**20
"""Of all turns that are kept."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """
    messages: all of the conversation, this answer included. rendered: the prompt as text.
    prompt, answer: packed token ids. text: the answer's.
    body: what the API said, as JSON, to be said again.
    """

    messages: list[dict[str, Any]]
    rendered: str
    prompt: bytes
    answer: bytes
    text: str
    body: bytes

    @property
    def size(self) -> int:
        """Bytes, roughly: messages lie in the rendered text, which may take four a character."""
        text = 8 * len(self.rendered) + 8 * len(self.text)
        return text + len(self.prompt) + len(self.answer) + len(self.body) + 2048


class Conversations:
    """The last turns of all tenants, each found by its own tenant only. For one event loop.

    Where there is no room, the tenant with most loses its oldest: who fills the memory fills it
    with their own.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._turns: defaultdict[str, OrderedDict[str, Turn]] = defaultdict(OrderedDict)
        self._bytes: Counter[str] = Counter()
        self._most = most

    def keep(self, tenant: str, name: str, turn: Turn) -> None:
        """Remember a turn."""
        self._turns[tenant][name] = turn
        self._bytes[tenant] += turn.size
        while self._bytes.total() > self._most:
            [(biggest, _)] = self._bytes.most_common(1)
            self.drop(biggest, next(iter(self._turns[biggest])))

    def find(self, tenant: str, name: str) -> Turn | None:
        return self._turns[tenant].get(name)

    def drop(self, tenant: str, name: str) -> bool:
        """Forget a turn; False when the tenant has none of this name."""
        turn = self._turns[tenant].pop(name, None)
        if turn is None:
            return False
        self._bytes[tenant] -= turn.size
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
