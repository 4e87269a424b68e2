"""What was computed once is reused exactly, to the token."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headwater.cache.tokens import pack
from headwater.testing.brute import shared
from tests.cache.stories import HOME, PAGE, a_rig, arrive, compute, leave, ready, serve

few = st.integers(0, 2)  # so few different tokens that prompts meet


@pytest.mark.parametrize("length", [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
def test_a_prompt_sent_three_times_is_computed_once(length):
    rig = a_rig()
    assert [serve(rig, range(length)) for _ in range(3)] == [0, length, length]
    assert rig.cache.cached == -(-length // PAGE)


@given(st.lists(st.lists(few, min_size=1, max_size=14), min_size=1, max_size=8))
def test_a_prompt_reuses_the_longest_prefix_it_shares_with_any_earlier_one(prompts):
    rig = a_rig(pages=128)
    for index, prompt in enumerate(prompts):
        seen = (shared(pack(prompt), pack(earlier)) for earlier in prompts[:index])
        assert serve(rig, prompt) == max(seen, default=0)


def test_a_branch_in_mid_page_copies_the_leading_slots_of_that_page_only():
    rig = a_rig()
    serve(rig, [1, 2, 3, 4, 5, 6, 7, 8])
    branch = rig.begin(HOME, pack([1, 2, 3, 4, 5, 6, 9]))
    assert branch.lease.written == 6
    assert branch.lease.shared == 1
    assert branch.lease.copy.count == 2
    compute(rig, branch)
    leave(rig, branch)
    assert rig.cache.cached == 3
    assert ready(rig, [1, 2, 3, 4, 5, 6, 7, 8]) == 8
    assert ready(rig, [1, 2, 3, 4, 5, 6, 9]) == 7


def test_a_branch_at_a_page_boundary_copies_nothing():
    rig = a_rig()
    serve(rig, [1, 2, 3, 4, 5, 6, 7, 8])
    branch = rig.begin(HOME, pack([1, 2, 3, 4, 9]))
    assert branch.lease.written == 4
    assert branch.lease.copy is None


def test_what_a_branch_forgoes_to_copy_it_computes():
    rig = a_rig()
    serve(rig, [1, 2, 3, 4, 5, 6, 7, 8])
    branch = arrive(rig, [1, 2, 3, 4, 5, 6, 9])
    rig.forgo_copy(branch)
    assert branch.computed == 4
    compute(rig, branch)
    assert ready(rig, [1, 2, 3, 4, 5, 6, 9]) == 7


def test_a_prompt_that_is_the_beginning_of_another_is_a_full_hit():
    rig = a_rig()
    serve(rig, range(10))
    for length in range(1, 11):
        assert serve(rig, range(length)) == length


def test_a_prompt_goes_on_in_the_last_page_of_a_shorter_one():
    rig = a_rig()
    serve(rig, range(6))
    longer = arrive(rig, range(8))
    assert longer.lease.copy is None
    compute(rig, longer)
    assert rig.cache.cached == 2


def test_the_empty_slots_of_a_leaf_have_one_claimant():
    rig = a_rig()
    serve(rig, range(6))
    first = rig.begin(HOME, pack([*range(6), 100]))
    second = rig.begin(HOME, pack([*range(6), 200]))
    assert first.lease.copy is None
    assert second.lease.copy.count == 2
    for sequence in (second, first):
        compute(rig, sequence)
    rig.verify_all()
    assert ready(rig, [*range(6), 100]) == ready(rig, [*range(6), 200]) == 7


def test_a_full_hit_needs_no_page():
    rig = a_rig(pages=2)
    serve(rig, range(8))
    again = rig.begin(HOME, pack(range(8)))
    assert again.computed == 8
    assert rig.grow(again, 8)
    assert rig.cache.pool.free == 0


def test_generated_tokens_are_hit_by_the_next_turn():
    rig = a_rig()
    first = arrive(rig, range(5))
    compute(rig, first)
    for token in range(5, 12):
        first.key += pack([token])
        compute(rig, first)
    leave(rig, first)
    assert serve(rig, range(14)) == 12
    assert rig.cache.cached == 4


def test_two_sequences_that_generate_the_same_tokens_keep_one_copy():
    rig = a_rig()
    twins = [rig.begin(HOME, pack([1])) for _ in range(2)]
    for length in range(1, 9):
        for twin in twins:
            twin.key = pack(range(1, length + 1))
            compute(rig, twin)
    for twin in twins:
        leave(rig, twin)
    assert rig.cache.cached == 2
    assert ready(rig, range(1, 9)) == 8


def test_an_evicted_short_tail_is_published_again():
    rig = a_rig()
    serve(rig, range(5))
    rig.cache._evict(1, 0.0, 0, rig.cache.policy.common)
    assert ready(rig, range(5)) == 4
    assert [serve(rig, range(5)) for _ in range(2)] == [4, 5]


def test_a_sibling_with_kv_is_found_behind_one_that_has_none():
    rig = a_rig()
    arrive(rig, [1, 2, 3, 8])  # promised, not computed
    serve(rig, [1, 2, 3, 9])
    assert ready(rig, [1, 2, 3, 8]) == 3
    assert ready(rig, [1, 2, 3, 7]) == 3


def test_namespaces_never_meet():
    rig = a_rig()
    serve(rig, range(8), b"mine")
    assert serve(rig, range(8), b"yours") == 0
    assert rig.cache.cached == 4


def test_a_match_changes_nothing():
    rig = a_rig()
    for tokens in ([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5], [7]):
        serve(rig, tokens)
    arrive(rig, [1, 2, 3, 4, 5, 6, 5])
    prompts = [[1], [1, 2, 3, 4, 5, 6], [7, 7], [9], [], list(range(1, 30))]
    before = books(rig)
    for prompt in prompts:
        for namespace in (HOME, b"never seen"):
            rig.cache.match(namespace, pack(prompt))
    assert books(rig) == before


def books(rig):
    """All the cache knows, down to every attribute of every node."""
    cache = rig.cache
    free, ghosts = cache.pool.free_extents(), cache.ghosts.tokens
    out = [cache.cached, cache.pinned, cache.evicted, free, ghosts]
    todo = list(cache.tree.roots.items())
    while todo:
        name, node = todo.pop()
        state = {slot: getattr(node, slot) for slot in node.__slots__}
        state["runs"] = copy.deepcopy(node.runs.extents)
        state["order"] = None if node.order is None else list(node.order)
        state["children"] = dict(node.children)
        out.append((name, state))
        todo.extend(node.children.items())
    return out


def test_many_namespaces_leave_nothing_behind():
    rig = a_rig()
    for number in range(300):
        serve(rig, range(5), str(number).encode())
    rig.finish()
    assert rig.cache.tree.roots == {}


def test_requests_that_only_ask_leave_nothing_behind():
    rig = a_rig()
    serve(rig, range(9))
    before = books(rig)[:5]
    for number in range(500):
        sequence = rig.begin(HOME, pack([*range(9), number]))
        rig.promise(sequence)
        rig.release(sequence)
    rig.check()
    assert books(rig)[:5] == before


def test_thousands_of_short_requests_return_to_the_baseline():
    rig = a_rig(pages=16)
    for number in range(2000):
        sequence = rig.begin(HOME, pack([number % 7, number % 11, number]))
        assert rig.run(sequence, 3)
        rig.release(sequence)
    rig.finish()
