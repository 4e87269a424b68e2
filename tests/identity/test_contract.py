"""Each fact of the meaning counts; no fact of form or text does; epochs are no counters."""

from __future__ import annotations

import msgspec
import pytest

from headwater.errors import ContractError
from headwater.identity.contract import Adapter, KVMeaning
from tests.identity.contracts import (
    ADAPTER,
    OTHER_ADAPTER,
    OTHER_FORM,
    OTHER_MEANING,
    SAMPLE,
    varied,
)


def test_the_variations_cover_every_field():
    assert OTHER_MEANING.keys() == set(KVMeaning.__struct_fields__)
    assert OTHER_ADAPTER.keys() == set(Adapter.__struct_fields__)
    assert OTHER_FORM.keys() == set(type(SAMPLE.form).__struct_fields__)


@pytest.mark.parametrize("field", OTHER_MEANING)
def test_each_fact_of_the_meaning_alone_changes_the_digest(field):
    assert varied(SAMPLE, "meaning", field, OTHER_MEANING[field]).digest() != SAMPLE.digest()


@pytest.mark.parametrize("field", OTHER_ADAPTER)
def test_each_fact_of_the_adapter_alone_changes_the_digest(field):
    other = msgspec.structs.replace(ADAPTER, **{field: OTHER_ADAPTER[field]})
    assert SAMPLE.with_adapter(other).digest() != SAMPLE.with_adapter(ADAPTER).digest()


@pytest.mark.parametrize("field", OTHER_FORM)
def test_form_does_not_change_the_digest(field):
    assert varied(SAMPLE, "form", field, OTHER_FORM[field]).digest() == SAMPLE.digest()


@pytest.mark.parametrize("field", ["tokenizer_digest", "template_digest"])
def test_text_does_not_change_the_digest(field):
    assert varied(SAMPLE, "text", field, "0" * 64).digest() == SAMPLE.digest()


def test_other_weights_are_another_contract_which_names_them_alone():
    other = SAMPLE.with_weights("01234567" * 8)
    assert other.meaning.epoch == other.meaning.weight_digest == "01234567" * 8
    assert other.digest() != SAMPLE.digest()
    assert SAMPLE.with_weights("f" * 64).with_weights("01234567" * 8) == other


@pytest.mark.parametrize("epoch", ["", "1", "epoch-2", "B" * 32, "b" * 31, "b" * 65])
def test_a_counter_is_no_epoch(epoch):
    with pytest.raises(ContractError, match=r"meaning\.epoch"):
        varied(SAMPLE, "meaning", "epoch", epoch)
    with pytest.raises(ContractError, match="SHA-256"):
        SAMPLE.with_weights(epoch)


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight_digest", "abc"), ("media", "cat.png"), ("layers", 0), ("head_size", -1)],
)
def test_an_impossible_fact_is_refused_by_name(field, value):
    with pytest.raises(ContractError, match=rf"meaning\.{field}"):
        varied(SAMPLE, "meaning", field, value)


def test_an_adapter_is_named_by_digest_not_by_name():
    with pytest.raises(ContractError, match=r"adapter\.digest"):
        Adapter(digest="my-adapter", scale=1.0, from_position=0)
    with pytest.raises(ContractError, match="from_position"):
        Adapter(digest="d" * 64, scale=1.0, from_position=-1)


def test_golden():
    """These digests root namespaces in tiers that outlive a version: they must never change."""
    assert (
        SAMPLE.digest().hex() == "4ba1e9dfdba8490842efdb8f9ee5ba11710cff7e9d254ef295a2661bca301e1d"
    )
    assert (
        SAMPLE.with_adapter(ADAPTER).digest().hex()
        == "0e54ae1738b95686b02f6b76f83482cc17a11d671e0852186ec9d5f1abd90374"
    )
