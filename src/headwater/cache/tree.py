"""The prefix tree: which token sequences have KV, and in which pages.

    namespace A   root ── [0 ......... 48) ── [48 ... 61)
                             │                    └ a leaf; its last page has 3 empty slots
                             └── [48 ........ 96)

A node starts at a page boundary and owns its pages alone, so a branch in mid-page is a sibling
that begins at that page and holds its own copy of the shared leading slots. Inside a node the
token axis falls in two:

    0            ready          length
    |  KV is here  |  promised to `owner`, or a ghost when nobody owns it  |

*Ghost* tokens are remembered after their KV is gone, so that a miss can be explained. KV is ready
from the root down: a node has ready tokens only when its parent is ready to its end.

Nodes hold no clock and no policy. This file changes structure only; who may change it, and when
pages move, is decided in prefix_cache.py.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Any

from sortedcontainers import SortedList

from headwater.cache.pages import Runs
from headwater.cache.tokens import WIDTH, common_prefix

FEW_CHILDREN = 8
"""Up to here children are sorted when neighbours are looked for; above, kept sorted."""

NEAR = 16
"""How far to each side a child with KV is looked for among many of which some have none. Where it
stands further away, the tokens of less than a page are computed again."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Why the tokens behind `ready` have no KV: when they lost it and to whom."""

    time: float
    by: int


class Owner:
    """Who has promised to fill a node, or may write its empty tail slots. A lease, that is; to the
    tree it is somebody who has written the first `written` tokens of the path."""

    __slots__ = ("written",)

    written: int


class Share:
    """A part of the pool whose pages are counted together (see shares.py). In pages.

    cached: owned by its nodes; pinned: of these, on a held path; floor: how many of the cached ones
    are evicted for its own members only.
    """

    __slots__ = ("cached", "floor", "name", "pinned")

    def __init__(self, name: str, floor: int) -> None:
        self.name = name
        self.floor = floor
        self.cached = 0
        self.pinned = 0

    @property
    def evictable(self) -> int:
        return self.cached - self.pinned

    @property
    def protected(self) -> int:
        """Of the evictable ones, those that others have to leave."""
        return min(self.evictable, max(self.floor - self.pinned, 0))


class Node:
    """A run of tokens [start, start + length) of a prefix, and the pages of its ready part."""

    __slots__ = (
        "children",
        "gone",
        "held",
        "last_use",
        "leases",
        "length",
        "live_children",
        "note",
        "order",
        "owner",
        "parent",
        "ready",
        "runs",
        "serial",
        "share",
        "start",
        "tokens",
        "uses",
    )

    def __init__(self, parent: Node | None, tokens: bytes, start: int, share: Share) -> None:
        self.parent = parent
        self.share = share  # where its pages are counted
        self.tokens = tokens
        self.start = start
        self.length = len(tokens) // WIDTH
        self.ready = 0
        self.runs = Runs()
        self.serial = 0  # order of making
        self.children: dict[bytes, Node] = {}
        self.order: SortedList[bytes] | None = None  # the children's keys, once there are many
        self.owner: Owner | None = None  # who will fill it, or who may write its empty tail slots
        self.leases = 0  # leases that end at this node
        self.held = 0  # leases, copies in flight and held children
        self.live_children = 0  # children that have KV or an owner
        self.last_use = 0.0
        self.uses = 0  # leases whose path it was on
        self.gone: Gone | None = None
        self.note: Any = None  # the policy's own

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def is_ready(self) -> bool:
        """Its whole length has KV."""
        return self.ready == self.length

    @property
    def is_live(self) -> bool:
        """It has KV, or somebody is about to give it some."""
        return self.ready > 0 or self.owner is not None

    @property
    def is_evictable(self) -> bool:
        """A leaf of what is resident that nobody uses."""
        return (
            self.ready > 0
            and self.held == 0
            and self.live_children == 0
            and self.owner is None
            and self.parent is not None
        )

    def key(self, page: int) -> bytes:
        """What its parent files it under: its first page of tokens."""
        return self.tokens[: page * WIDTH]

    def __repr__(self) -> str:
        state = "owned" if self.owner is not None else "free"
        return f"Node([{self.start}, {self.end}), ready={self.ready}, held={self.held}, {state})"


@dataclass(frozen=True, slots=True)
class Match:
    """How much of a prompt the tree knows.

        0        ready       promised      known       length of the prompt
        |  cached  | being made  |  ghost    |  never seen  |

    node: the deepest node whose tokens all match; inside: the child in which the prompt diverges
    (or ends), when there is one. `stop` is the node in which the ready part ends; it may be a
    sibling of the path's, when that has more of its first page's tokens. `maker` is the
    lease that has promised [ready, promised).
    """

    ready: int
    promised: int
    known: int
    node: Node
    inside: Node | None
    stop: Node
    maker: Owner | None

    @property
    def places(self) -> list[Node]:
        """The nodes, without roots, whose change can change this match."""
        nodes = {self.node, self.stop}
        if self.inside is not None:
            nodes.add(self.inside)
        node = self.node
        while not node.is_ready and node.parent is not None:  # up to where the path's KV ends
            node = node.parent
            nodes.add(node)
        return [node for node in nodes if node.parent is not None]


class PrefixTree:
    """One root a namespace; nodes below it by their first page of tokens."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.roots: dict[bytes, Node] = {}
        self.nodes = 0
        self._made = 0
        self._namespace_of: dict[Node, bytes] = {}
        self._empty = Node(None, b"", 0, Share("", 0))

    def root(self, namespace: bytes, share: Share) -> Node:
        """The namespace's root, made when there is none; what is below it counts in `share`."""
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Node(None, b"", 0, share)
            self._namespace_of[root] = namespace
        return root

    def uproot(self, namespace: bytes) -> Node | None:
        """Make a namespace unreachable. Its nodes live on below the returned root."""
        root = self.roots.pop(namespace, None)
        if root is not None:
            del self._namespace_of[root]
        return root

    def is_current(self, root: Node) -> bool:
        """The root can still be reached by its namespace."""
        return root in self._namespace_of

    def drop_if_empty(self, root: Node) -> None:
        """Namespaces are many and short-lived: an empty one leaves nothing behind."""
        namespace = self._namespace_of.get(root)
        if namespace is not None and not root.children and not root.held:
            self.uproot(namespace)

    def match(self, namespace: bytes, key: bytes) -> Match:
        """The longest part of `key` that the tree knows. Changes nothing."""
        node = self.roots.get(namespace, self._empty)
        first_page = self.page * WIDTH
        at = 0
        stop: Node | None = None
        while at < len(key):
            child = node.children.get(key[at : at + first_page])
            if child is None or not key.startswith(child.tokens, at):
                break
            if stop is None and child.ready < child.length:
                stop = child
            node = child
            at += len(child.tokens)
        inside, common = self.partial(node, key, at)
        if inside is not None and common == inside.length:  # a short last page, matched whole
            if stop is None and inside.ready < inside.length:
                stop = inside
            node, inside, common = inside, None, 0
        return self._matched(key, node, stop, inside, common)

    def _matched(
        self, key: bytes, node: Node, stop: Node | None, inside: Node | None, common: int
    ) -> Match:
        known = node.end + common
        if stop is None:  # everything above is ready: the partial child decides
            if inside is not None and inside.ready > 0:
                ready = node.end + min(common, inside.ready)
                stop = inside
            else:
                ready, stop = node.end, node
            first_unready = inside if inside is not None and inside.ready < common else None
        else:
            ready = stop.start + stop.ready
            first_unready = stop
        promised = ready
        maker = None if first_unready is None else first_unready.owner
        if first_unready is not None and maker is not None:
            promised = self._promised_to(first_unready, node, inside, known)
        match = Match(ready, promised, known, node, inside, stop, maker)
        return match if first_unready is None else self._or_sibling(match, first_unready, key)

    def _or_sibling(self, match: Match, unready: Node, key: bytes) -> Match:
        """A sibling of the first node that lacks KV may have more of the same page's tokens."""
        above = unready.parent
        assert above is not None
        if unready.ready >= self.page or above.live_children == unready.is_live:
            return match
        wanted = key[above.end * WIDTH : (above.end + self.page) * WIDTH]
        most, best = match.ready - above.end, match.stop
        for candidate in self._neighbours(above, wanted, NEAR):
            child = above.children[candidate]
            shared = min(common_prefix(candidate, wanted), child.ready)
            if shared > most:
                most, best = shared, child
        ready = above.end + most
        maker = match.maker if match.promised > ready else None
        promised = max(ready, match.promised)
        return replace(match, ready=ready, promised=promised, stop=best, maker=maker)

    @staticmethod
    def _promised_to(first: Node, node: Node, inside: Node | None, known: int) -> int:
        """Where the promise that begins at `first` ends on the way down to `known`."""
        if first is inside:
            return known
        chain = [] if inside is None else [inside]
        while node is not first and node.parent is not None:
            chain.append(node)
            node = node.parent
        end = first.end
        for below in reversed(chain):
            if below.owner is not first.owner:
                break
            end = min(below.end, known)
        return end

    def partial(self, node: Node, key: bytes, at: int) -> tuple[Node | None, int]:
        """The child of `node` that shares most tokens with key[at:], and how many."""
        if at >= len(key) or not node.children:
            return None, 0
        child = node.children.get(key[at : at + self.page * WIDTH])
        if child is not None:
            return child, common_prefix(child.tokens, key[at : at + len(child.tokens)])
        best: Node | None = None
        most = 0
        wanted = key[at : at + self.page * WIDTH]
        for candidate in self._neighbours(node, wanted, 1):
            common = common_prefix(candidate, wanted)
            if common > most:
                best, most = node.children[candidate], common
        return best, most

    def _neighbours(self, node: Node, wanted: bytes, reach: int) -> list[bytes]:
        """Keys of children among which the longest common prefix with `wanted` is found.

        In byte order the key that shares most with `wanted` stands next to where it would stand.
        Few children are sorted here: were they taken as they come, another one of several that
        share as much would be found from the child on that makes them many.
        """
        if node.order is None:
            keys = sorted(node.children)
            at = bisect_left(keys, wanted)
            return keys[max(at - reach, 0) : at + reach]
        at = node.order.bisect_left(wanted)
        return list(node.order[max(at - reach, 0) : at + reach])

    # Structure: every change of parent and child goes through these.

    def add(self, parent: Node, tokens: bytes) -> Node:
        """A new child. Its first page must be unlike that of every other child."""
        node = Node(parent, tokens, parent.end, parent.share)
        self._number(node)
        self._file(parent, node)
        self.nodes += 1
        return node

    def remove(self, node: Node) -> None:
        """Take a childless node out."""
        parent = node.parent
        assert parent is not None and not node.children
        self._unfile(parent, node)
        node.parent = None
        self.nodes -= 1
        self.drop_if_empty(parent)

    def has_twin(self, node: Node, tokens: bytes) -> bool:
        """With these tokens instead of its own the node would be filed where a sibling is."""
        assert node.parent is not None
        return node.parent.children.get(tokens[: self.page * WIDTH], node) is not node

    def lengthen(self, node: Node, tokens: bytes) -> None:
        """Add tokens behind a childless node."""
        parent = node.parent
        assert parent is not None and not node.children
        refile = node.length < self.page
        if refile:
            self._unfile(parent, node)
        node.tokens += tokens
        node.length = len(node.tokens) // WIDTH
        if refile:
            self._file(parent, node)

    def shorten(self, node: Node, length: int) -> None:
        """Forget the tokens behind the first `length` (at least one) of a childless node."""
        parent = node.parent
        assert parent is not None and not node.children and node.ready <= length
        refile = length < self.page
        if refile:
            self._unfile(parent, node)
        node.tokens = node.tokens[: length * WIDTH]
        node.length = length
        if refile:
            self._file(parent, node)

    def split(self, node: Node, at: int) -> Node:
        """Cut a node `at` tokens (whole pages) after its start; return the new upper part.

        The object keeps the *lower* part: leases, holders and policies refer to where a path ends,
        so nothing that points at the node needs to be told.
        """
        parent = node.parent
        assert parent is not None and 0 < at < node.length and at % self.page == 0
        upper = Node(parent, node.tokens[: at * WIDTH], node.start, node.share)
        self._number(upper)
        key = upper.key(self.page)
        parent.children[key] = upper
        upper.ready = min(node.ready, at)
        node.ready -= upper.ready
        lower_runs = node.runs.cut(min(at // self.page, node.runs.pages))
        upper.runs, node.runs = node.runs, lower_runs
        upper.owner = None if upper.is_ready else node.owner
        upper.held = 1 if node.held else 0
        upper.last_use, upper.gone, upper.note = node.last_use, node.gone, node.note
        upper.uses = node.uses
        node.tokens = node.tokens[at * WIDTH :]
        node.length -= at
        node.start += at
        node.parent = upper
        upper.live_children = 1 if node.is_live else 0
        upper.children[node.key(self.page)] = node
        self.nodes += 1
        return upper

    def _number(self, node: Node) -> None:
        self._made += 1
        node.serial = self._made

    def _file(self, parent: Node, node: Node) -> None:
        key = node.key(self.page)
        assert key not in parent.children
        parent.children[key] = node
        if parent.order is not None:
            parent.order.add(key)
        elif len(parent.children) > FEW_CHILDREN:
            parent.order = SortedList(parent.children)

    def _unfile(self, parent: Node, node: Node) -> None:
        key = node.key(self.page)
        del parent.children[key]
        if parent.order is not None:
            parent.order.remove(key)
            if len(parent.children) <= FEW_CHILDREN // 2:
                parent.order = None
