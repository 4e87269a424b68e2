"""May KV of one contract be used under another?

same         as it is
convertible  after changes of form that keep every number (the comparison names them)
refused      never: the numbers would be wrong, or nobody can know that they are right
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from headwater.identity.contract import Facts, KVContract
from headwater.identity.document import load, parse, problems
from headwater.identity.framing import frame

# What prefixes are found by: token ids, or the text they came from.
Keys = Literal["tokens", "text"]
Verdict = Literal["same", "convertible", "refused"]

# What makes up for a difference of form.
CONVERSIONS = {"form.page_size": "repage", "form.layout": "transpose", "form.codec": "recode"}


class Difference(msgspec.Struct, frozen=True):
    """A field that two contracts do not agree on, or that one of them should not or must have.

    a, b: the two values as JSON text; None where the field is absent.
    """

    field: str
    a: str | None
    b: str | None
    why: Literal["differs", "unknown", "missing", "malformed"]


class Comparison(msgspec.Struct, frozen=True):
    verdict: Verdict
    differences: tuple[Difference, ...]
    conversions: tuple[str, ...]


def compare(a: KVContract, b: KVContract, keys: Keys = "tokens") -> Comparison:
    """Compare two contracts. Tokenizer and template count only where `keys` are text."""
    return _judge(list(_walk(msgspec.to_builtins(a), msgspec.to_builtins(b), "")), keys)


def compare_documents(a: bytes, b: bytes, keys: Keys = "tokens") -> Comparison:
    """Compare two contracts in JSON, which may come from other versions of this program.

    A field that is unknown, missing or malformed in either refuses, even when both have it alike:
    what a fact means that we do not know, we cannot judge. Raises ContractError for a document
    that is not a JSON object.
    """
    left, right = parse(a), parse(b)
    faults = {fault.field: fault for fault in (*problems(left), *problems(right))}
    if not faults:
        return compare(load(a), load(b), keys)
    found = [
        Difference(field, _at(left, field), _at(right, field), fault.kind)
        for field, fault in sorted(faults.items())
    ]
    ordinary = (d for d in _walk(left, right, "") if d.field not in faults)
    return Comparison("refused", (*found, *ordinary), ())


def _judge(found: list[Difference], keys: Keys) -> Comparison:
    counted = [d for d in found if keys == "text" or not d.field.startswith("text.")]
    conversions = [CONVERSIONS[d.field] for d in counted if d.field in CONVERSIONS]
    if not counted:
        return Comparison("same", (), ())
    if len(conversions) < len(counted):
        return Comparison("refused", tuple(counted), ())
    return Comparison("convertible", tuple(counted), tuple(conversions))


def _walk(a: Facts, b: Facts, path: str) -> Iterator[Difference]:
    """The leaves in which two JSON objects differ, in the order of `a`, then what only `b` has."""
    for name in dict.fromkeys((*a, *b)):
        left, right = a.get(name), b.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from _walk(left, right, f"{path}{name}.")
        # Frames, not values: what is equal here must be equal to the digest, and 1 == True == 1.0.
        elif name not in a or name not in b or frame(left) != frame(right):
            yield Difference(path + name, _shown(a, name), _shown(b, name), "differs")


def _at(document: Facts, field: str) -> str | None:
    """The JSON text of a field by its dotted path, None where it is absent."""
    *parents, name = field.split(".")
    for parent in parents:
        inner: object = document.get(parent)
        if not isinstance(inner, dict):
            return None
        document = inner
    return _shown(document, name)


def _shown(document: Facts, name: str) -> str | None:
    return msgspec.json.encode(document[name]).decode() if name in document else None
