"""Reading a contract: what is unknown, missing or malformed is named, never guessed."""

from __future__ import annotations

import json

import pytest

from headwater.errors import ContractError
from headwater.identity.document import dump, load, problems
from tests.identity.contracts import ADAPTER, SAMPLE


def document():
    return json.loads(dump(SAMPLE.with_adapter(ADAPTER)))


def paths(value, path=""):
    """Every field of a contract that a struct declares, by its dotted path."""
    facts = ("meaning.position_encoding", "meaning.attention", "meaning.settings")
    for name, inner in value.items():
        yield path + name
        if isinstance(inner, dict) and path + name not in facts:
            yield from paths(inner, f"{path}{name}.")


def parent(value, path):
    for name in path.split(".")[:-1]:
        value = value[name]
    return value


@pytest.mark.parametrize("contract", [SAMPLE, SAMPLE.with_adapter(ADAPTER)])
def test_what_is_written_is_read(contract):
    assert load(dump(contract)) == contract


@pytest.mark.parametrize("path", list(paths(document())))
def test_a_missing_field_is_named(path):
    damaged = document()
    del parent(damaged, path)[path.split(".")[-1]]
    with pytest.raises(ContractError, match=rf"\b{path} \(missing\)"):
        load(json.dumps(damaged).encode())


@pytest.mark.parametrize("where", ["", "meaning.", "meaning.adapter.", "form.", "text."])
def test_an_unknown_field_is_named(where):
    newer = document()
    parent(newer, where + "x")["window"] = 4096
    with pytest.raises(ContractError, match=rf"{where}window \(unknown\)"):
        load(json.dumps(newer).encode())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("meaning.layers", "30"),
        ("meaning.layers", 0),
        ("meaning.epoch", "1"),
        ("meaning.adapter", "my-adapter"),
        ("meaning.adapter.scale", None),
        ("meaning.settings", []),
        ("form", None),
        ("text.tokenizer_digest", 5),
    ],
)
def test_a_malformed_field_is_named(path, value):
    damaged = document()
    parent(damaged, path)[path.split(".")[-1]] = value
    found = problems(damaged)
    assert [(problem.field, problem.kind) for problem in found] == [(path, "malformed")]


def test_another_version_is_refused_without_judging_its_fields():
    newer = {"schema": "headwater.contract/2", "facts": {}}
    with pytest.raises(ContractError, match=r"schema \(unknown\)"):
        load(json.dumps(newer).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\x80\x04N."])
def test_what_is_no_object_is_no_contract(data):
    with pytest.raises(ContractError, match="not a JSON object"):
        load(data)
