"""Contracts as JSON documents, and what keeps a document from being one.

Reading is strict where other formats are lenient: a field that we do not know is a fact that we
cannot judge, and an absent one is a fact that nobody stated. Both are named, so that a person sees
which of two versions is behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args, get_type_hints

import msgspec

from headwater.errors import ContractError
from headwater.identity.contract import SCHEMA, Facts, KVContract

_DEEPEST = 32
"""Levels of objects and lists. Contracts of this version have four."""

_TOO_DEEP = f"This is not a contract: it is nested more than {_DEEPEST} levels deep."


class Problem(msgspec.Struct, frozen=True):
    """Why a document is no contract: a field that is unknown, missing or malformed."""

    field: str
    kind: Literal["unknown", "missing", "malformed"]


def dump(contract: KVContract) -> bytes:
    """The contract as indented JSON, keys in the order of the fields."""
    return msgspec.json.format(msgspec.json.encode(contract), indent=2)


def load(data: bytes) -> KVContract:
    """The contract in a JSON document.

    Raises ContractError, naming the field, for one that is unknown, missing or malformed.
    """
    document = parse(data)
    found = problems(document)
    if found:
        listed = ", ".join(f"{problem.field} ({problem.kind})" for problem in found)
        raise ContractError(f"This is not a complete contract of a known version: {listed}.")
    return msgspec.convert(document, KVContract)


def parse(data: bytes) -> Facts:
    """The JSON object in a document. Raises ContractError when it holds something else."""
    try:
        document = msgspec.json.decode(data, type=Facts)
    except msgspec.DecodeError as error:
        raise ContractError("This is not a contract: it is not a JSON object.") from error
    except RecursionError as error:
        raise ContractError(_TOO_DEEP) from error
    _require_shallow(document)
    return document


def _require_shallow(document: Facts) -> None:
    """What walks through documents does so by recursion, which must not fail half-way."""
    level: list[object] = [document]
    for _ in range(_DEEPEST):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise ContractError(_TOO_DEEP)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def problems(document: Facts) -> list[Problem]:
    """All that keeps a JSON object from being a contract; empty when it is one."""
    if "schema" in document and document["schema"] != SCHEMA:
        return [Problem("schema", "unknown")]  # the fields of another version are not ours to judge
    found = _misfits(document, KVContract, "")
    if found:
        return found
    try:
        msgspec.convert(document, KVContract)
    except (msgspec.ValidationError, ContractError) as error:
        # Both name the field by its path: "... - at `$.meaning.layers`", "meaning.epoch must ...".
        path = re.search(r"(?:\$\.|^)((?:meaning|form|text)[\w.]*)", str(error))
        return [Problem(path.group(1) if path else "contract", "malformed")]
    return []


def _misfits(document: Facts, kind: type[msgspec.Struct], path: str) -> list[Problem]:
    """The unknown and missing fields of an object and of the structs inside it."""
    types = get_type_hints(kind)
    found = [Problem(path + name, "unknown") for name in sorted(document.keys() - types.keys())]
    for name, declared in types.items():
        if name not in document:
            found.append(Problem(path + name, "missing"))
            continue
        inner = _struct_in(declared)
        if inner and isinstance(document[name], dict):
            found += _misfits(document[name], inner, f"{path}{name}.")
    return found


def _struct_in(declared: object) -> type[msgspec.Struct] | None:
    """The struct that a field's type allows, if there is one."""
    for candidate in (declared, *get_args(declared)):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None
