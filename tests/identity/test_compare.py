"""Same, convertible or refused, always with the fields that made the verdict."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headwater.errors import ContractError
from headwater.identity.compare import compare, compare_documents
from headwater.identity.document import dump
from tests.identity.contracts import ADAPTER, OTHER_FORM, OTHER_MEANING, SAMPLE, varied


def test_a_contract_is_the_same_as_itself():
    found = compare(SAMPLE, SAMPLE)
    assert (found.verdict, found.differences, found.conversions) == ("same", (), ())


@pytest.mark.parametrize("field", OTHER_MEANING)
def test_each_fact_of_the_meaning_alone_refuses_and_is_named(field):
    found = compare(SAMPLE, varied(SAMPLE, "meaning", field, OTHER_MEANING[field]))
    assert found.verdict == "refused"
    assert all(d.field.startswith(f"meaning.{field}") for d in found.differences)
    assert found.differences


@pytest.mark.parametrize(
    ("field", "conversion"), [("page_size", "repage"), ("layout", "transpose"), ("codec", "recode")]
)
def test_each_fact_of_the_form_alone_is_convertible(field, conversion):
    found = compare(SAMPLE, varied(SAMPLE, "form", field, OTHER_FORM[field]))
    assert (found.verdict, found.conversions) == ("convertible", (conversion,))
    assert [d.field for d in found.differences] == [f"form.{field}"]


def test_one_refused_fact_outweighs_any_conversion():
    other = varied(varied(SAMPLE, "form", "page_size", 32), "meaning", "layers", 31)
    found = compare(SAMPLE, other)
    assert (found.verdict, found.conversions) == ("refused", ())
    assert {d.field for d in found.differences} == {"form.page_size", "meaning.layers"}


@pytest.mark.parametrize("field", ["tokenizer_digest", "template_digest"])
def test_text_counts_only_where_keys_are_text(field):
    other = varied(SAMPLE, "text", field, "0" * 64)
    assert compare(SAMPLE, other).verdict == "same"
    assert compare(SAMPLE, other, keys="text").verdict == "refused"


def test_both_values_are_shown():
    found = compare(SAMPLE, varied(SAMPLE, "meaning", "layers", 31))
    assert [(d.a, d.b, d.why) for d in found.differences] == [("30", "31", "differs")]


def test_a_fact_that_only_one_has_is_shown_as_absent():
    other = varied(SAMPLE, "meaning", "settings", {})
    (difference,) = compare(SAMPLE, other).differences
    assert difference.field == "meaning.settings.rms_norm_eps"
    assert difference.b is None


facts = st.sampled_from(
    [("meaning", field, value) for field, value in OTHER_MEANING.items()]
    + [("form", field, value) for field, value in OTHER_FORM.items()]
    + [("meaning", "settings", {"x": value}) for value in (1, 1.0, True, "1", None)]
)


@given(st.lists(facts, max_size=4), st.lists(facts, max_size=4))
def test_the_verdict_agrees_with_the_digest(left, right):
    """Refused exactly when the namespaces differ: else KV would be lost, or wrongly found."""
    a = b = SAMPLE
    for change in left:
        a = varied(a, *change)
    for change in right:
        b = varied(b, *change)
    assert (compare(a, b).verdict == "refused") == (a.digest() != b.digest())
    assert compare(a, b).verdict == compare(b, a).verdict
    assert compare_documents(dump(a), dump(b)) == compare(a, b)


def test_a_field_unknown_to_both_refuses():
    newer = json.loads(dump(SAMPLE))
    newer["meaning"]["window"] = 4096
    data = json.dumps(newer).encode()
    found = compare_documents(data, data)
    assert found.verdict == "refused"
    assert [(d.field, d.a, d.why) for d in found.differences] == [
        ("meaning.window", "4096", "unknown")
    ]


def test_a_missing_field_refuses_beside_the_ordinary_differences():
    older = json.loads(dump(SAMPLE.with_adapter(ADAPTER)))
    del older["meaning"]["media"]
    found = compare_documents(dump(SAMPLE), json.dumps(older).encode())
    assert found.verdict == "refused"
    assert [(d.field, d.why) for d in found.differences] == [
        ("meaning.media", "missing"),
        ("meaning.adapter", "differs"),
    ]


def test_what_is_no_document_cannot_be_compared():
    with pytest.raises(ContractError):
        compare_documents(dump(SAMPLE), b"[]")
