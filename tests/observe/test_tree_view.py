"""The prefix tree as an operator sees it."""

from __future__ import annotations

import pytest

from headwater.cache.tokens import pack
from headwater.observe.tree_view import HEAD, view_tree
from tests.cache.stories import HOME, PAGE, a_rig, arrive, compute, leave, ready, serve

TRUNK = [1] * (2 * PAGE)
AWAY = b"away"
DOMAINS = {HOME: "acme", AWAY: "umbrella"}


def view(rig, limit=100, now=1e9):
    return view_tree(rig.cache, DOMAINS, limit, now)


@pytest.fixture
def rig():
    """Two prompts of one domain that share a trunk, and one of another domain."""
    rig = a_rig()
    serve(rig, [*TRUNK, *[2] * PAGE])
    serve(rig, [*TRUNK, *[3] * PAGE])
    serve(rig, [9] * PAGE, AWAY)
    return rig


def test_a_trunk_and_its_branches_are_nodes_in_the_order_of_the_tree(rig):
    nodes = {node.id: node for node in view(rig)}
    trunk, *rest = [node for node in nodes.values() if node.domain == "acme"]
    assert (trunk.start, trunk.length, trunk.parent) == (0, 2 * PAGE, None)
    assert [(node.start, node.length, node.parent) for node in rest] == [
        (2 * PAGE, PAGE, trunk.id)
    ] * 2
    assert {node.head for node in rest} == {(2,) * PAGE, (3,) * PAGE}


def test_pages_and_tokens_are_those_of_the_cache(rig):
    nodes = view(rig)
    assert sum(node.pages for node in nodes) == rig.cache.cached
    assert sum(node.ready for node in nodes) == PAGE * rig.cache.cached


def test_nodes_are_of_the_domain_of_their_namespace(rig):
    assert {node.domain for node in view(rig)} == {"acme", "umbrella"}
    assert view_tree(rig.cache, {AWAY: "umbrella"}, 100, 0.0)[0].length == PAGE
    assert view_tree(rig.cache, {}, 100, 0.0) == []


def test_the_most_used_come_first_and_each_after_its_parent(rig):
    for _ in range(3):
        serve(rig, [*TRUNK, *[3] * PAGE])
    nodes = view(rig)
    assert [node.uses for node in nodes] == sorted((node.uses for node in nodes), reverse=True)
    for number, node in enumerate(nodes):
        assert node.parent is None or node.parent in {each.id for each in nodes[:number]}
    assert view(rig, limit=2) == nodes[:2]


def test_what_is_in_use_and_what_is_being_computed_says_so(rig):
    assert not any(node.holders or node.promised for node in view(rig))
    sequence = arrive(rig, [*TRUNK, *[4] * (2 * PAGE)])
    [promised] = [node for node in view(rig) if node.promised]
    assert (promised.start, promised.ready) == (2 * PAGE, 0)
    compute(rig, sequence)
    [used] = [node for node in view(rig) if node.holders and node.start]
    assert (used.ready, used.promised) == (2 * PAGE, False)
    leave(rig, sequence)
    assert not any(node.holders for node in view(rig))


def test_what_was_evicted_is_a_node_without_kv():
    rig = a_rig(pages=8, ghost_tokens=1000)
    serve(rig, TRUNK)
    for number in range(10, 20):
        serve(rig, [number] * (4 * PAGE), AWAY)
    [gone] = [node for node in view(rig) if node.domain == "acme"]
    assert (gone.ready, gone.pages, gone.length) == (0, 0, 2 * PAGE)


def test_a_head_is_the_beginning_of_a_node():
    rig = a_rig()
    serve(rig, list(range(3 * HEAD)))
    [node] = view(rig)
    assert node.head == tuple(range(HEAD))


def test_looking_changes_nothing(rig):
    before = view(rig)
    rig.check()
    assert view(rig) == before
    assert ready(rig, TRUNK) == len(TRUNK)
    assert rig.look(HOME, pack(TRUNK)).ready == len(TRUNK)


def test_idle_is_the_time_since_the_last_use(rig):
    early, late = view(rig, now=1e6), view(rig, now=1e6 + 5)
    assert [b.idle - a.idle for a, b in zip(early, late, strict=True)] == [5.0] * len(early)
    assert all(node.idle == 0 for node in view(rig, now=-1.0))
