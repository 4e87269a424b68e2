"""Values as bytes, injectively.

Every value is written as a type tag, its length and its body, so that no two different values
have the same bytes: neither ("org_1", "2345") and ("org_12345", ""), nor an adapter named S and a
salt named S, nor the number 1 and the text "1". Joining with separators was the alternative; it
needs escaping, and forgetting the escaping once lets two tenants share a key.

    value     tag (1 byte), length of the body in bytes (8, big endian), body
    sequence  the body is its values, one after another
    mapping   the body is key, value, key, value, ... in the order of the keys
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence


def frame(value: object) -> bytes:
    """The bytes of a value made of None, bool, int, float, str, bytes, sequences and mappings.

    Lists and tuples are the same sequence, as they are in JSON. Raises TypeError for any other
    type and ValueError for a float that is not a number, which would not equal itself.
    """
    tag, body = _tagged(value)
    return tag + len(body).to_bytes(8, "big") + body


def _tagged(value: object) -> tuple[bytes, bytes]:
    match value:
        case None:
            return b"N", b""
        case bool():  # before int, of which it is a subclass
            return b"T", b"\x01" if value else b"\x00"
        case int():
            return b"I", str(value).encode("ascii")
        case float():
            if math.isnan(value):
                raise ValueError("a float that is not a number names nothing")
            return b"F", struct.pack(">d", value)
        case str():
            # A lone surrogate can arrive in JSON; it must be a key like any other, not a crash.
            return b"S", value.encode("utf-8", "surrogatepass")
        case bytes():
            return b"B", value
        case Mapping():
            items = sorted(value.items())
            return b"M", b"".join(frame(key) + frame(item) for key, item in items)
        case Sequence():
            return b"L", b"".join(frame(item) for item in value)
    raise TypeError(f"cannot frame a {type(value).__name__}")
