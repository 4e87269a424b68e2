"""The tree's own laws: finding among many children, and cutting nodes."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headwater.cache.tokens import pack
from headwater.cache.tree import FEW_CHILDREN, PrefixTree, Share
from headwater.testing.brute import shared

PAGE = 4


def a_family(children):
    tree = PrefixTree(PAGE)
    root = tree.root(b"", Share("", 0))
    for tokens in children:
        key = pack(tokens)
        if key[: 4 * PAGE] not in root.children:
            tree.add(root, key)
    return tree, root


tokens = st.lists(st.sampled_from([0, 1, 255, 256, 65536]), min_size=1, max_size=6)


@given(st.lists(tokens, min_size=1, max_size=40), tokens)
def test_the_child_that_shares_most_is_found_among_many(children, wanted):
    tree, root = a_family(children)
    child, common = tree.partial(root, pack(wanted), 0)
    best = max(shared(node.tokens, pack(wanted)) for node in root.children.values())
    assert common == best
    assert (child is None) == (best == 0)
    assert child is None or shared(child.tokens, pack(wanted)) == best


@given(st.lists(tokens, min_size=2, max_size=FEW_CHILDREN), tokens)
def test_the_child_that_is_found_does_not_change_when_strangers_make_the_children_many(few, wanted):
    """Which of several that share as much is found: a change would come without a notice."""
    tree, root = a_family(few)
    found, common = tree.partial(root, pack(wanted), 0)
    for stranger in range(FEW_CHILDREN + 1):
        tree.add(root, pack([1 << 24 | stranger]))  # behind all others in byte order, or before
    if common:
        assert tree.partial(root, pack(wanted), 0) == (found, common)


def test_the_sorted_order_comes_and_goes_with_the_children():
    rng = random.Random(0)
    tree, root = a_family([])
    names = rng.sample(range(1000), 3 * FEW_CHILDREN)
    for name in names:
        tree.add(root, pack([name]))
        assert (root.order is None) == (len(root.children) <= FEW_CHILDREN)
    for name in names:
        tree.remove(root.children[pack([name])])
        if root.order is not None:
            assert list(root.order) == sorted(root.children)
    assert root.order is None


@pytest.mark.parametrize("ready", [0, 3, 4, 6, 8, 11])
@pytest.mark.parametrize("at", [4, 8])
def test_a_cut_parts_tokens_pages_and_what_is_ready(at, ready):
    tree, root = a_family([range(11)])
    (node,) = root.children.values()
    node.ready = ready
    for page in range(-(-ready // PAGE)):
        node.runs.append(10 * page, 1)
    upper = tree.split(node, at)
    assert (upper.start, upper.end, node.start, node.end) == (0, at, at, 11)
    assert upper.tokens + node.tokens == pack(range(11))
    assert (upper.ready, node.ready) == (min(ready, at), max(ready - at, 0))
    assert [*upper.runs, *node.runs] == [10 * page for page in range(-(-ready // PAGE))]
    assert node.parent is upper
    assert root.children == {upper.key(PAGE): upper}


def test_a_name_has_one_root_and_leaves_none_behind():
    tree = PrefixTree(PAGE)
    root = tree.root(b"name", Share("", 0))
    assert tree.root(b"name", Share("", 0)) is root
    assert tree.is_current(root)
    tree.drop_if_empty(root)
    assert not tree.is_current(root)
    assert tree.roots == {}


def test_an_empty_prompt_matches_nothing():
    tree, _ = a_family([[1, 2]])
    match = tree.match(b"", b"")
    assert (match.ready, match.promised, match.known, match.inside) == (0, 0, 0, None)
