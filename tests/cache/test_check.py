"""Every book of the cache, spoiled by hand, is found out."""

from __future__ import annotations

import pytest

from headwater.cache.check import Unbalanced, check, check_idle
from headwater.cache.pages import Runs
from headwater.cache.tokens import pack
from headwater.testing.slots import Corrupt
from tests.cache.stories import HOME, a_rig, arrive, compute, ready, serve


@pytest.fixture
def rig():
    """A resident branch, a ghost, a running sequence with private pages, a copy and a pin."""
    rig = a_rig(pages=16)
    serve(rig, range(40, 48))
    serve(rig, [1, 2, 3, 4, 5, 6, 7, 8])
    running = arrive(rig, [1, 2, 3, 4, 9, 9, 9, 9])
    rig.grow(running, 12)
    compute(rig, running, 6)
    rig.pin(running)
    rig.begin(HOME, pack([1, 2, 3, 4, 5, 6, 100]))
    rig.cache._evict(1, 0.0, 0, rig.cache.policy.common)
    rig.check()
    return rig


def running(rig):
    return rig.sequences[0].lease


def leaf(rig):
    return rig.cache.match(HOME, pack([1, 2, 3, 4, 5, 6, 7, 8])).stop


def evictable(rig):
    return rig.cache.policy.next()


def miscount_tokens(rig):
    leaf(rig).length += 1


def misplace(rig):
    leaf(rig).start += 4


def misfile(rig):
    node = leaf(rig)
    node.tokens = pack([77]) + node.tokens[4:]


def claim_kv_without_pages(rig):
    evictable(rig).ready += 4


def claim_kv_behind_a_gap(rig):
    leaf(rig).parent.ready = 0


def forget_a_live_child(rig):
    leaf(rig).parent.live_children -= 1


def forget_a_live_child_of_the_root(rig):
    rig.cache.tree.roots[HOME].live_children += 1


def promise_for_the_dead(rig):
    evictable(rig).owner = object()


def give_a_page_two_owners(rig):
    evictable(rig).runs = Runs([(leaf(rig).runs.page(0), 1)])


def steal_a_page(rig):
    free = rig.cache.pool.free_extents()[0][0]
    evictable(rig).runs = Runs([(free, 1)])


def free_a_page_in_use(rig):
    rig.cache.pool.give(Runs([(evictable(rig).runs.page(0), 1)]))


def lose_a_page(rig):
    rig.cache.pool.take(1)


def lose_a_private_page(rig):
    running(rig).table.cut(running(rig).table.pages - 1)


def plant_a_wrong_page_table(rig):
    table = running(rig).table
    head, rest = table.slice(0, 1), table.slice(1, table.pages)
    table.cut(0)
    rest.extend(head)
    table.extend(rest)


def miscount_cached(rig):
    rig.cache.cached += 1


def miscount_pinned(rig):
    rig.cache.pinned -= 1


def miscount_free(rig):
    rig.cache.pool.free += 1


def miscount_io(rig):
    rig.cache.in_io += 1


def miscount_leases(rig):
    running(rig).node.leases += 1


def hold_once_too_often(rig):
    leaf(rig).held += 1


def hold_once_too_little(rig):
    running(rig).node.held -= 1


def hold_the_root_once_too_often(rig):
    rig.cache.tree.roots[HOME].held += 1


def lose_a_pin(rig):
    rig.cache.pins.clear()


def lose_a_lease(rig):
    rig.cache.leases.discard(running(rig))


def list_a_released_lease(rig):
    running(rig).released = True


def miscount_ghosts(rig):
    rig.cache.ghosts.tokens += 1


def miscount_nodes(rig):
    rig.cache.tree.nodes += 1


def leave_an_empty_namespace(rig):
    rig.cache.tree.root(b"empty", rig.cache.policy.common)


def publish_more_than_is_written(rig):
    running(rig).written -= 1


def claim_more_than_there_is_room_for(rig):
    running(rig).written += 100


def share_more_pages_than_the_path_has(rig):
    running(rig).shared += 1


def lease_what_is_neither_here_nor_promised(rig):
    running(rig).node.owner = None


def end_a_lease_below_another_root(rig):
    running(rig).root = rig.cache.tree.root(HOME + b"!", rig.cache.policy.common)


def hide_what_is_evictable(rig):
    rig.cache.policy._policies[rig.cache.policy.common]._heap.clear()


MUTATIONS = [
    value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", None) == __name__
    and name not in {"rig", "running", "leaf", "evictable"}
]


@pytest.mark.parametrize("spoil", MUTATIONS, ids=lambda spoil: spoil.__name__)
def test_a_spoiled_book_is_found_out(rig, spoil):
    spoil(rig)
    with pytest.raises(Unbalanced):
        check(rig.cache)


def test_there_are_mutations():
    assert len(MUTATIONS) > 25


def test_the_sorted_order_of_children_is_checked():
    rig = a_rig()
    for name in range(12):
        serve(rig, [name])
    rig.cache.tree.roots[HOME].order.pop()
    with pytest.raises(Unbalanced, match="order"):
        check(rig.cache)


def test_idle_means_that_nobody_holds_anything(rig):
    with pytest.raises(Unbalanced, match="at idle"):
        check_idle(rig.cache)
    rig.finish()


# What no book shows, the memory does.


def test_private_pages_in_the_wrong_order_are_found_by_the_memory():
    rig = a_rig()
    sequence = rig.begin(HOME, pack(range(8)))
    rig.grow(sequence, 8)
    rig.write(sequence, 8)
    first, second = sequence.lease.table
    sequence.lease.table = Runs([(second, 1), (first, 1)])
    rig.check()
    with pytest.raises(Corrupt):
        rig.verify(sequence)


def test_writing_below_what_is_published_is_found_by_the_memory():
    rig = a_rig()
    sequence = arrive(rig, range(8))
    compute(rig, sequence, 6)
    with pytest.raises(Corrupt, match="published"):
        rig.memory.write(sequence.lease, sequence.key, 5, 7)


def test_publishing_what_was_not_written_is_found_by_the_memory():
    rig = a_rig()
    sequence = arrive(rig, range(8))
    rig.grow(sequence, 8)
    with pytest.raises(Corrupt, match="never written"):
        rig.cache.commit(sequence.lease, sequence.key, 8, 0.0)


def test_reading_a_page_that_was_given_back_is_found_by_the_memory():
    rig = a_rig()
    sequence = arrive(rig, range(8))
    compute(rig, sequence)
    rig.memory.pool.give(sequence.lease.table)
    with pytest.raises(Corrupt, match="nothing"):
        rig.verify(sequence)


def test_kv_of_another_namespace_is_found_by_the_memory():
    rig = a_rig()
    sequence = arrive(rig, range(8))
    compute(rig, sequence)
    root = rig.cache.tree.uproot(HOME)
    rig.cache.tree.roots[b"other"] = root
    with pytest.raises(Corrupt, match="other KV"):
        rig.memory.verify_tree(b"other", root)


def test_a_match_that_finds_too_little_is_found_by_the_naive_model():
    rig = a_rig()
    serve(rig, range(8))
    (node,) = rig.cache.tree.roots[HOME].children.values()
    rig.cache.tree.roots[HOME].children = {b"misfiled": node}
    with pytest.raises(AssertionError, match="8 tokens are ready"):
        ready(rig, range(8))
