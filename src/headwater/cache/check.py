"""The conservation law and the shape of the tree, checked by counting everything again.

Slow on purpose: it trusts no counter. Tests call it after every operation, the engine when it goes
idle, and a failure names what does not add up.
"""

from __future__ import annotations

from collections import Counter

from headwater.cache.lease import Lease
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.tokens import WIDTH
from headwater.cache.tree import Node, Share


class Unbalanced(AssertionError):
    """The cache's books are wrong; the message says which."""


def _require(holds: bool, what: str, *about: object) -> None:  # noqa: FBT001 - it is what is said
    """`about` fills the braces in `what`, and is written out only when it is needed."""
    if not holds:
        raise Unbalanced(what.format(*about))


def check(cache: PrefixCache) -> None:
    """Raise Unbalanced unless every page has exactly one place and every count is right.

    free + cached + private + in I/O = all pages; every leased path is resident or promised to its
    lease; KV is ready from the root down; held, pinned, ghost and lease counts agree.
    """
    roots = set(cache.tree.roots.values()) | {holder.root for holder in cache.leases | cache.pins}
    nodes = _below(roots)
    for node in nodes:
        _check_node(cache, node)
    for node in roots.union(nodes):
        _check_children(node)
    _check_roots(cache)
    _check_pages(cache, nodes)
    _check_shares(cache, nodes)
    _check_holds(cache, roots, nodes)
    for lease in cache.leases:
        _check_lease(cache, lease)
    ghost = sum(n.length - n.ready for n in nodes if n.owner is None)
    _require(
        ghost == cache.ghosts.tokens, "{} ghost tokens, {} counted", ghost, cache.ghosts.tokens
    )
    _require(len(nodes) == cache.tree.nodes, "{} nodes, {} counted", len(nodes), cache.tree.nodes)
    _check_offer(cache)


def check_idle(cache: PrefixCache, pins: int = 0) -> None:
    """`check`, and nothing is leased, promised or in I/O, nor held but by `pins` pins: the baseline
    between requests."""
    check(cache)
    _require(not cache.leases, "{} leases at idle", len(cache.leases))
    _require(len(cache.pins) == pins, "{} pins at idle, not {}", len(cache.pins), pins)
    _require(cache.in_io == 0, "{} pages in I/O at idle", cache.in_io)
    _require(pins > 0 or cache.pinned == 0, "{} pages pinned at idle", cache.pinned)
    for node in _below(set(cache.tree.roots.values())):
        _require(node.owner is None, "{} is promised at idle", node)
        _require(pins > 0 or node.held == 0, "{} is in use at idle", node)


def _below(roots: set[Node]) -> list[Node]:
    """All nodes but the roots, also those that only a lease in a forgotten namespace reaches."""
    out: list[Node] = []
    stack = list(roots)
    while stack:
        children = stack.pop().children.values()
        out.extend(children)
        stack.extend(children)
    return out


# The tree


def _check_node(cache: PrefixCache, node: Node) -> None:
    parent, page = node.parent, cache.page
    assert parent is not None
    joins = node.start == parent.end and node.start % page == 0
    _require(joins, "{} does not join {}", node, parent)
    tokens = len(node.tokens)
    _require(tokens == WIDTH * node.length > 0, "{} has {} bytes of tokens", node, tokens)
    _require(0 <= node.ready <= node.length, "{} is readier than long", node)
    _require(parent.children.get(node.key(page)) is node, "{} is misfiled", node)
    _require(node.ready == 0 or parent.is_ready, "{} has KV behind a gap in {}", node, parent)
    pages = -(-node.ready // page)
    _require(node.runs.pages == pages, "{} has {} pages", node, node.runs.pages)
    whole = not node.children or node.length % page == 0
    _require(whole, "{} branches in mid-page", node)
    if node.owner is not None:
        ours = node.owner in cache.leases
        _require(ours, "{} is promised by a lease that has ended", node)


def _check_children(node: Node) -> None:
    live = sum(1 for child in node.children.values() if child.is_live)
    counted = node.live_children
    _require(live == counted, "{} has {} live children, {} counted", node, live, counted)
    if node.order is not None:
        _require(list(node.order) == sorted(node.children), "{} lost its children's order", node)


def _check_roots(cache: PrefixCache) -> None:
    for namespace, root in cache.tree.roots.items():
        _require(cache.tree.is_current(root), "the root of {!r} is not current", namespace)
        _require(bool(root.children or root.held), "namespace {!r} is empty", namespace)


# The pages


def _check_pages(cache: PrefixCache, nodes: list[Node]) -> None:
    pool = cache.pool
    owned: list[int] = []
    for node in nodes:
        owned.extend(node.runs)
    cached = len(owned)
    for lease in cache.leases:
        owned.extend(lease.table.slice(lease.shared, lease.table.pages))
    private = len(owned) - cached
    if len(set(owned)) < len(owned):
        twice = [page for page, count in Counter(owned).items() if count > 1]
        raise Unbalanced(f"pages {twice[:5]} have two owners")
    stolen = [page for page in owned if pool.is_free(page)]
    _require(not stolen, "pages {} are owned and free", stolen[:5])
    _require(cached == cache.cached, "{} pages cached, {} counted", cached, cache.cached)
    free = sum(count for _, count in pool.free_extents())
    _require(free == pool.free, "{} pages free, {} counted", free, pool.free)
    total = free + cached + private + cache.in_io
    _require(total == pool.pages, "{} of {} pages accounted for", total, pool.pages)


def _check_shares(cache: PrefixCache, nodes: list[Node]) -> None:
    cached, pinned = Counter[Share](), Counter[Share]()
    for node in nodes:
        cached[node.share] += node.runs.pages
        pinned[node.share] += node.runs.pages if node.held else 0
    for share in cache.policy:
        counted = share.cached, share.pinned
        really = cached[share], pinned[share]
        _require(counted == really, "share {!r} counts {}, not {}", share.name, counted, really)


# Who uses what


def _check_holds(cache: PrefixCache, roots: set[Node], nodes: list[Node]) -> None:
    leases = Counter(lease.node for lease in cache.leases)
    holders = leases + Counter(pin.node for pin in cache.pins)
    pinned = 0
    for node in roots.union(nodes):
        known = holders[node] + sum(1 for child in node.children.values() if child.held)
        _require(node.leases == leases[node], "{} counts {} leases", node, node.leases)
        _require(node.held == known, "{} is held, but not by {}", node, known)
        if node.held:
            pinned += node.runs.pages
    _require(pinned == cache.pinned, "{} pages pinned, {} counted", pinned, cache.pinned)
    elsewhere = set(holders).difference(nodes, roots)
    _require(not elsewhere, "{} are used and in no tree", elsewhere)


def _check_lease(cache: PrefixCache, lease: Lease) -> None:
    """The shared part of a page table is what the path's nodes own, in order."""
    _require(not lease.released, "a released lease is still listed")
    path: list[Node] = []
    node: Node | None = lease.node
    while node is not None:
        path.append(node)
        resident = node.is_ready or node.owner is lease
        _require(resident, "{} is leased, but neither here nor promised to the lease", node)
        node = node.parent
    _require(path[-1] is lease.root, "a lease at {} is below another root", lease.node)
    pages = [page for node in reversed(path) for page in node.runs]
    same = len(pages) == lease.shared and pages == list(lease.table.slice(0, lease.shared))
    _require(same, "the page table of a lease at {} is not its path", lease.node)
    published = next((n.start + n.ready for n in reversed(path) if not n.is_ready), lease.node.end)
    written = lease.written
    if lease.copy is not None:
        written -= lease.copy.count
        _require(lease.copy.source in cache.pins, "the source of a copy is not pinned")
    _require(published <= written, "{} tokens are published of {} written", published, written)
    room = lease.table.pages * cache.page
    _require(written <= room, "{} positions are written in room for {}", written, room)


def _check_offer(cache: PrefixCache) -> None:
    evictable = cache.cached - cache.pinned
    offered = cache.policy.next()
    _require(
        (offered is not None) == (evictable > 0), "{} evictable, {} offered", evictable, offered
    )
    _require(offered is None or offered.is_evictable, "{} is offered and in use", offered)
