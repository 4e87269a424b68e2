"""Sizes as people write them."""

from __future__ import annotations

import re
from fractions import Fraction

from headwater.errors import BadSetting

_BYTES = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip

_SIZE = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([a-z]*)\s*", re.IGNORECASE)

_PAGES = re.compile(r"\s*(\d{1,20})\s*pages?\s*")


def parse_pages(size: str | int) -> int | None:
    """The pages in "4096 pages"; None for a size that is not in pages."""
    named = _PAGES.fullmatch(str(size))
    return int(named[1]) if named else None


def parse_bytes(size: str | int) -> int:
    """Bytes in "2GiB", "512 MB" or a number of bytes. Raises BadSetting for anything else.

    Units keep their meaning: MB is a million bytes, MiB is 2^20; a bare "M" means both to
    different people and is refused.
    """
    if isinstance(size, int):
        return size
    found = _SIZE.fullmatch(size)
    unit = found and _BYTES.get(found[2].lower())
    if not found or not unit:
        raise BadSetting(f"{size!r} is no size; write a number and a unit, as in 512MB or 2GiB.")
    return int(Fraction(found[1]) * unit)
