"""Who meets whom: equal contract, domain and salt under an equal secret, and nobody else."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headwater.identity.namespace import Namespaces
from tests.identity.contracts import ADAPTER, OTHER_FORM, OTHER_MEANING, SAMPLE, varied

SECRET = bytes(range(32))
NAMESPACES = Namespaces(SECRET)

texts = st.text(alphabet="ab\x00|", max_size=4)


def key(domain="tenant", salt="", contract=SAMPLE):
    return NAMESPACES.key(contract.digest(), domain, salt)


def test_the_same_three_meet_and_in_any_process():
    assert key() == Namespaces(SECRET).key(SAMPLE.digest(), "tenant", "")


@given(texts, texts, texts, texts)
def test_domain_and_salt_never_run_into_each_other(domain_a, salt_a, domain_b, salt_b):
    equal = (domain_a, salt_a) == (domain_b, salt_b)
    assert (key(domain_a, salt_a) == key(domain_b, salt_b)) == equal


def test_two_tenants_whose_fields_join_to_the_same_text_do_not_meet():
    assert key("org_1", "2345") != key("org_12345", "")


def test_an_adapter_named_like_a_salt_does_not_meet_it():
    adapter = key(contract=SAMPLE.with_adapter(ADAPTER))
    assert adapter != key(salt=ADAPTER.digest)
    assert adapter != key(domain=ADAPTER.digest)


@pytest.mark.parametrize("field", OTHER_MEANING)
def test_each_fact_of_the_meaning_alone_is_another_namespace(field):
    assert key() != key(contract=varied(SAMPLE, "meaning", field, OTHER_MEANING[field]))


@pytest.mark.parametrize("field", OTHER_FORM)
def test_form_does_not_separate(field):
    assert key() == key(contract=varied(SAMPLE, "form", field, OTHER_FORM[field]))


def test_another_secret_is_another_world():
    assert key() != Namespaces(bytes(32)).key(SAMPLE.digest(), "tenant", "")


def test_the_secret_has_32_bytes_and_does_not_show():
    with pytest.raises(ValueError, match="32 bytes, not 5"):
        Namespaces(b"short")
    assert SECRET.hex() not in repr(NAMESPACES)


def test_golden():
    """Namespaces must be found again by later versions and by the other machines of a fleet."""
    assert key().hex() == "ad36dfa8c1e6a53067788854fdb9ae8f87f41c72bf560875a49916c181d20f0a"
    assert (
        key("org_1", "2345").hex()
        == "94b1e6fd71ffb5bfb0ceeba7bf8539e1d21eb3387c61fac9c7d34e8ea03ad772"
    )
