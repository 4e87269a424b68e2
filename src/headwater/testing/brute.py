"""The naive model: what a match should find, by looking at every path of the tree.

No index, no early exit, no order among children: nothing in it can be wrong in the way the real
walk could be.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.tokens import WIDTH, count


def ready_paths(cache: PrefixCache, namespace: bytes) -> Iterator[bytes]:
    """The token sequences that have KV, one for each node of a namespace."""
    root = cache.tree.roots.get(namespace)
    todo = [] if root is None else [(root, b"")]
    while todo:
        node, above = todo.pop()
        yield above + node.tokens[: node.ready * WIDTH]
        if node.is_ready:
            todo.extend((child, above + node.tokens) for child in node.children.values())


def known_paths(cache: PrefixCache, namespace: bytes) -> Iterator[bytes]:
    """The token sequences that the tree can name, with KV or without."""
    root = cache.tree.roots.get(namespace)
    todo = [] if root is None else [(root, b"")]
    while todo:
        node, above = todo.pop()
        yield above + node.tokens
        todo.extend((child, above + node.tokens) for child in node.children.values())


def longest_ready(cache: PrefixCache, namespace: bytes, key: bytes) -> int:
    """How many leading tokens of `key` have KV."""
    return max((shared(path, key) for path in ready_paths(cache, namespace)), default=0)


def longest_known(cache: PrefixCache, namespace: bytes, key: bytes) -> int:
    """How many leading tokens of `key` the tree has seen and not forgotten."""
    return max((shared(path, key) for path in known_paths(cache, namespace)), default=0)


def shared(a: bytes, b: bytes) -> int:
    """How many leading tokens two packed sequences have in common, token by token."""
    for index in range(min(count(a), count(b))):
        at = slice(index * WIDTH, (index + 1) * WIDTH)
        if a[at] != b[at]:
            return index
    return min(count(a), count(b))
