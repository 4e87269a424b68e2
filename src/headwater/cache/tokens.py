"""Token sequences as packed bytes.

Inside the pure packages a token sequence is `bytes` of little-endian int32. Bytes are hashable,
immutable and compared by memcmp at any offset (`key.startswith(node.tokens, at)`), which is what
makes matching 131,072 tokens a matter of microseconds in plain Python.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

WIDTH = 4  # bytes a token

FEW = 64
"""Up to here packing one by one beats the set-up of an array."""

Tokens = npt.NDArray[np.int32]


def pack(tokens: Sequence[int] | npt.NDArray[np.integer]) -> bytes:
    """Pack token ids, each in [0, 2**31). Raises OverflowError for one outside."""
    if isinstance(tokens, list) and len(tokens) <= FEW and min(tokens, default=0) >= 0:
        try:
            return struct.pack(f"<{len(tokens)}i", *tokens)
        except struct.error:
            raise OverflowError("a token id must lie in [0, 2**31)") from None
    array = np.asarray(tokens)
    if array.size and (array.min() < 0 or array.max() > 0x7FFFFFFF):
        raise OverflowError("a token id must lie in [0, 2**31)")
    return array.astype("<i4", copy=False).tobytes()


def unpack(key: bytes) -> Tokens:
    """The token ids of a packed sequence, as a read-only array."""
    return np.frombuffer(key, dtype="<i4")


def count(key: bytes) -> int:
    """How many tokens a packed sequence holds."""
    return len(key) // WIDTH


def common_prefix(a: bytes, b: bytes) -> int:
    """How many leading tokens two packed sequences share."""
    size = min(len(a), len(b)) // WIDTH
    if size <= 64:  # one page or a few: integers beat the set-up of arrays
        x = int.from_bytes(a[: size * WIDTH], "little")
        y = int.from_bytes(b[: size * WIDTH], "little")
        difference = x ^ y
        if difference == 0:
            return size
        return ((difference & -difference).bit_length() - 1) // (8 * WIDTH)
    differs = np.frombuffer(a, "<i4", size) != np.frombuffer(b, "<i4", size)
    first = int(differs.argmax())
    return first if differs[first] else size
