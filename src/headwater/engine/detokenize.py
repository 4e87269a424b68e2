"""Text from tokens, one token at a time, never half a character.

A token is bytes, and text is those bytes read as UTF-8. What a token ends with may be the first
half of a character whose rest is in the next one (an emoji is often three or four tokens), so a
decoder keeps the unfinished bytes. The usual way, decoding a window of tokens twice and comparing,
costs more, and holds text back whenever a model really writes the replacement character.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

TokenBytes = Callable[[int], bytes]
"""The bytes a token adds to a text; none for a special token."""


class Detokenizer:
    """The text of one answer. Bytes that are no UTF-8 become replacement characters."""

    __slots__ = ("_bytes_of", "_decoder")

    def __init__(self, bytes_of: TokenBytes) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The characters that the token completes."""
        return self._decoder.decode(self._bytes_of(token))

    def flush(self) -> str:
        """What an answer that ends inside a character has left."""
        return self._decoder.decode(b"", final=True)
