"""Chunk names: what tiers know the KV of a piece of a prompt by.

    tokens   [0, c)      [c, 2c)      [2c, 3c)    | rest, unnamed: a tier stores whole chunks
    name     n0       -> n1        -> n2            each names everything up to its end

A name chains over the names before it, because the KV of a token depends on all tokens before it.
It is keyed by the namespace, so that equal prompts of different tenants have unrelated names.
"""

from __future__ import annotations

from hashlib import blake2b

from headwater.identity.framing import frame

NAME_BYTES = 32
TOKEN_BYTES = 4

# Separates names from every other use of a key (BLAKE2's personalisation, RFC 7693).
_USE = b"headwater.chnk/1"


def chunk_names(namespace: bytes, tokens: bytes, chunk_tokens: int) -> list[bytes]:
    """The names (32 bytes each) of all whole chunks of a token sequence.

    tokens: packed little-endian int32. chunk_tokens: tokens a chunk; it is part of the names,
    since chunks of different sizes are different objects even where they end alike.
    Raises ValueError for half a token or a chunk of no tokens.
    """
    if len(tokens) % TOKEN_BYTES or chunk_tokens < 1:
        raise ValueError("tokens must be whole int32 values, and a chunk hold at least one")
    size = chunk_tokens * TOKEN_BYTES
    # Chain and chunk have fixed sizes within a namespace and chunk size, so nothing else is framed.
    name = blake2b(frame(chunk_tokens), digest_size=NAME_BYTES, key=namespace, person=_USE).digest()
    names = []
    for begin in range(0, len(tokens) - size + 1, size):
        link = name + tokens[begin : begin + size]
        name = blake2b(link, digest_size=NAME_BYTES, key=namespace, person=_USE).digest()
        names.append(name)
    return names
