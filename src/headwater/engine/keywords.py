"""What comes by keyword, checked against the struct that says what there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from headwater.errors import HeadwaterError

Kind = TypeVar("Kind", bound=msgspec.Struct)


def read_keywords(
    named: Mapping[str, Any], kind: type[Kind], wrong: type[HeadwaterError], what: str
) -> Kind:
    """Check keywords. numpy's numbers and arrays count as their Python twins.

    Raises TypeError for one that is unknown (no `what`), `wrong` for a value of another type.
    """
    for name in named:
        if name not in kind.__struct_fields__:
            raise TypeError(f"{name!r} is no {what}")
    try:
        return msgspec.convert({name: _plain(named[name]) for name in named}, kind)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$.")
        raise wrong(f"{where.rstrip('`')}: {said}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
