"""A chunk's name names everything up to the chunk's end, in one namespace."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headwater.identity.names import chunk_names

NAMESPACE = bytes(range(32))

# Few different tokens, so that equal chunks and shared prefixes are common.
prompts = st.lists(st.sampled_from([0, 1, 256]), max_size=20)
sizes = st.integers(1, 5)


def packed(tokens):
    return struct.pack(f"<{len(tokens)}i", *tokens)


@given(prompts, sizes)
def test_only_whole_chunks_have_names(tokens, size):
    assert len(chunk_names(NAMESPACE, packed(tokens), size)) == len(tokens) // size


@given(prompts, prompts, sizes)
def test_two_prompts_share_exactly_the_names_of_their_common_chunks(a, b, size):
    names_a, names_b = (chunk_names(NAMESPACE, packed(tokens), size) for tokens in (a, b))
    for index, (name_a, name_b) in enumerate(zip(names_a, names_b, strict=False)):
        end = (index + 1) * size
        assert (name_a == name_b) == (a[:end] == b[:end])
    assert not set(names_a[len(names_b) :]) & set(names_b)


@given(prompts, sizes, sizes)
def test_chunks_of_different_sizes_have_different_names(tokens, size, other):
    names, others = (set(chunk_names(NAMESPACE, packed(tokens), s)) for s in (size, other))
    assert names == others if size == other else not names & others


@given(prompts, sizes)
def test_no_two_chunks_of_a_prompt_have_one_name(tokens, size):
    names = chunk_names(NAMESPACE, packed(tokens), size)
    assert len(set(names)) == len(names)


def test_equal_prompts_in_two_namespaces_have_unrelated_names():
    tokens = packed(range(64))
    assert not set(chunk_names(NAMESPACE, tokens, 16)) & set(chunk_names(bytes(32), tokens, 16))


def test_golden():
    """Names are what a persistent tier finds its objects by: they must never change."""
    assert [name.hex() for name in chunk_names(NAMESPACE, packed(range(5)), 2)] == [
        "1090986ccddb1f43f8c0e7accacf0520062802703598ec8df1101ec592584a41",
        "5fc49c9d3ac9ac2fcd32d16a3de1a3c1b0a5275913dac0baddd5727ac8ab5dff",
    ]


@pytest.mark.parametrize(("tokens", "size"), [(b"\x00", 16), (b"", 0), (b"", -1)])
def test_half_a_token_and_an_empty_chunk_are_refused(tokens, size):
    with pytest.raises(ValueError, match="whole int32"):
        chunk_names(NAMESPACE, tokens, size)
