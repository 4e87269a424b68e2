"""The prefix tree as an operator sees it: what is kept, how often it is used, who uses it now.

Reads a cache and changes nothing. Token ids come out as they are; whoever shows them to people
decides whether their text may be shown.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import msgspec

from headwater.cache.paged_tree import PagedTree
from headwater.cache.tokens import WIDTH, unpack
from headwater.cache.tree import Node


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """
    id, parent: of the node; the parent of a namespace's first nodes is None.
    domain: whose it is. start, length: its tokens' positions; ready: those with KV.
    pages: of KV. uses: leases so far. holders: leases, pins and children in use now.
    idle: seconds since its last use. head: its first token ids.
    """

    id: int
    parent: int | None
    domain: str
    start: int
    length: int
    ready: int
    pages: int
    uses: int
    holders: int
    promised: bool
    idle: float
    head: tuple[int, ...]


HEAD = 32
"""Tokens of a node that are shown."""


def view_tree(
    cache: PagedTree, domains: Mapping[bytes, str], limit: int, now: float
) -> list[NodeView]:
    """The most used nodes, at most `limit`, each after its parent. Of namespaces in `domains`."""
    views: list[NodeView] = []
    heap: list[tuple[int, int, Node, str]] = []

    def offer(node: Node, domain: str) -> None:
        for child in node.children.values():
            heapq.heappush(heap, (-child.uses, child.serial, child, domain))

    for namespace, domain in domains.items():
        root = cache.tree.roots.get(namespace)
        if root is not None:
            offer(root, domain)
    while heap and len(views) < limit:
        _, _, node, domain = heapq.heappop(heap)
        views.append(_view(node, domain, now))
        offer(node, domain)
    return views


def _view(node: Node, domain: str, now: float) -> NodeView:
    parent = node.parent
    assert parent is not None
    return NodeView(
        id=node.serial,
        parent=None if parent.parent is None else parent.serial,
        domain=domain,
        start=node.start,
        length=node.length,
        ready=node.ready,
        pages=node.runs.pages,
        uses=node.uses,
        holders=node.held,
        promised=node.owner is not None and not node.is_ready,
        idle=max(now - node.last_use, 0.0),
        head=tuple(unpack(node.tokens[: HEAD * WIDTH]).tolist()),
    )
