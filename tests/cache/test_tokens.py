"""Token sequences as bytes."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from headwater.cache.tokens import common_prefix, count, pack, unpack
from headwater.testing.brute import shared

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=200)
few = st.lists(st.sampled_from([0, 1, 256, 1 << 24]), max_size=200)


@given(tokens)
def test_packing_loses_nothing(ids):
    assert unpack(pack(ids)).tolist() == ids
    assert count(pack(ids)) == len(ids)


@given(tokens, tokens)
def test_packing_concatenates(a, b):
    assert pack(a) + pack(b) == pack(a + b)


@pytest.mark.parametrize("outside", [-1, 2**31, 2**63, 2**64, -(2**70)])
def test_what_is_no_token_id_is_refused(outside):
    with pytest.raises(OverflowError):
        pack([1, outside, 3])


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32, np.uint64])
def test_arrays_of_any_integers_pack_alike(kind):
    assert pack(np.array([1, 2, 3], dtype=kind)) == pack([1, 2, 3])


@given(few, few, few)
def test_the_common_prefix_is_counted_to_the_token(head, a, b):
    a, b = pack(head + a), pack(head + b)
    assert common_prefix(a, b) == common_prefix(b, a) == shared(a, b)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130])
def test_a_difference_in_any_byte_of_a_token_is_seen(length):
    for at in {0, length // 2, length - 1}:
        for bit in (0, 8, 16, 30):
            other = [0] * length
            other[at] = 1 << bit
            assert common_prefix(pack([0] * length), pack(other)) == at
