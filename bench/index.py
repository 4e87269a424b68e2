"""The prefix tree alone: no engine, no tensors.

The question asked everywhere is: how much of this prompt of 131,072 tokens is cached? vLLM answers
it by hashing the prompt block by block and looking every hash up; the tree by comparing token ids
down a path.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np

from bench.options import Options
from bench.peers.worker import PeerMissing, Worker
from bench.report import Row, median_ratio
from headwater.cache.pages import PagePool
from headwater.cache.policies import LRU
from headwater.cache.prefix_cache import PrefixCache
from headwater.cache.tokens import Tokens, pack
from headwater.cache.tree import Node

PAGE = 16
PROMPT = 131_072
PATH = 64
NODES = 100_000
SMALL, LARGE = 1_000, 1_000_000
REPEATS = 400
EVICTED = 32
SPACE = b"bench"


def run(options: Options) -> list[Row]:
    rng = np.random.default_rng(0)
    return [*_long_prompt(options, rng), *_growth(options, rng)]


class Index:
    """A prefix cache that is filled without an engine: what is promised is committed at once."""

    def __init__(self, pages: int) -> None:
        self.cache = PrefixCache(PagePool(pages, PAGE), LRU(), ghost_tokens=0)
        self.now = 0.0

    def insert(self, tokens: Tokens) -> None:
        """A request's life as the cache sees it, from int32 ids to a published, unheld prefix."""
        cache, key = self.cache, pack(tokens)
        self.now += 1.0
        lease = cache.lease(SPACE, key, self.now)
        cache.promise(lease, key)
        if not cache.grow(lease, len(tokens), self.now):
            raise RuntimeError("the pool is too small for the benchmark")
        cache.copied(lease)
        cache.commit(lease, key, len(tokens), self.now)
        cache.release(lease, self.now)

    def match(self, tokens: Tokens) -> int:
        return self.cache.match(SPACE, pack(tokens)).ready

    def make_room(self, pages: int) -> None:
        """Take pages that nobody uses from a full pool, and give them back."""
        self.now += 1.0
        lease = self.cache.lease(SPACE, b"", self.now)
        if not self.cache.grow(lease, pages * PAGE, self.now):
            raise RuntimeError("nothing could be evicted")
        self.cache.release(lease, self.now)

    def depth(self, tokens: Tokens) -> int:
        """How many nodes a prompt's cached part goes through."""
        depth, node = 0, self.cache.match(SPACE, pack(tokens)).stop
        while node.parent is not None:
            depth, node = depth + 1, node.parent
        return depth

    def nodes(self) -> int:
        open_, count = list(self.cache.tree.roots.values()), 0
        while open_:
            node: Node = open_.pop()
            count += 1
            open_ += node.children.values()
        return count


# One long prompt


def _long_prompt(options: Options, rng: np.random.Generator) -> list[Row]:
    options.say(f"index: a prompt of {PROMPT} tokens in a tree of {NODES} nodes")
    inserts = max(options.rounds, 3)
    index = Index(NODES + (2 + inserts) * PROMPT // PAGE + PATH)
    prompt = _random(rng, PROMPT)
    index.insert(prompt)
    step = PROMPT // PATH
    for end in range(
        step, PROMPT, step
    ):  # each leaves the prompt at `end` and so splits a node there
        index.insert(np.concatenate([prompt[:end], _random(rng, PAGE)]))
    _fill(index, rng, NODES)
    if index.match(prompt) != PROMPT:
        raise RuntimeError("the prompt is not cached as it should be")
    tree = f"{index.depth(prompt)} nodes deep in a tree of {index.nodes()} nodes, page {PAGE}"
    return [
        *_match_rows(options, index, prompt, tree),
        _insert_row(index, [_random(rng, PROMPT) for _ in range(inserts)]),
    ]


def _match_rows(options: Options, index: Index, prompt: Tokens, tree: str) -> list[Row]:
    how = f"{PROMPT} cached tokens as an int32 array, conversion included, {tree}; median"
    ours = [_median(lambda: index.match(prompt), 20) for _ in range(options.rounds)]
    rows = [Row("index.match_us", statistics.median(ours) * 1e6, "µs", "", how)]
    ids = [int(token) for token in prompt]
    theirs, ours = [], []
    try:
        with Worker("vllm") as vllm:
            vllm.call("hash_match", tokens=ids, cached_blocks=NODES)
            for _ in range(options.rounds):
                theirs.append(float(vllm.call("hash_match", tokens=ids, cached_blocks=NODES)))
                ours.append(_median(lambda: index.match(prompt), 20))
    except PeerMissing as missing:
        return [*rows, Row("index.match_vs_vllm", None, "x faster", "vLLM", str(missing))]
    versus = (
        f"vLLM: a request with sha256 hashes of blocks of 16, and get_computed_blocks, {NODES} "
        f"blocks cached, from a Python list, as it wants it; {options.rounds} interleaved rounds"
    )
    return [
        *rows,
        Row("index.match_vs_vllm", median_ratio(theirs, ours), "x faster", "vLLM", versus),
        Row("index.vllm_match_us", statistics.median(theirs) * 1e6, "µs", "", versus),
    ]


def _insert_row(index: Index, prompts: list[Tokens]) -> Row:
    seconds = [_time(partial(index.insert, prompt)) for prompt in prompts]
    how = (
        f"{PROMPT} new tokens: lease, promise, grow, commit, release, in the same tree; "
        f"median of {len(prompts)}"
    )
    return Row("index.insert_ms", statistics.median(seconds) * 1e3, "ms", "", how)


# Growth


def _growth(options: Options, rng: np.random.Generator) -> list[Row]:
    options.say(f"index: growth from {SMALL} to {LARGE} nodes")
    small, large = Index(SMALL), Index(LARGE)
    known = {index: _fill(index, rng, index.cache.pool.pages) for index in (small, large)}
    verbs: dict[str, Callable[[Index, int], float]] = {
        "match": lambda index, i: _time_match(index, known[index][i % len(known[index])]),
        "insert": lambda index, i: _time_insert(index, rng),
        "evict": lambda index, i: _time(lambda: index.make_room(EVICTED)) / EVICTED,
    }
    rows, worst = [], 0.0
    for verb, timed in verbs.items():
        times: dict[Index, list[float]] = {small: [], large: []}
        for i in range(REPEATS):
            for index in (small, large):
                times[index].append(timed(index, i))
                _refill(index, rng)
        quick, slow = statistics.median(times[small]), statistics.median(times[large])
        worst = max(worst, slow / quick)
        how = (
            f"medians of {REPEATS}, interleaved: {quick * 1e6:.2f} µs at {SMALL} nodes, "
            f"{slow * 1e6:.2f} µs at {large.nodes()}"
        )
        rows.append(Row(f"index.growth_{verb}", slow / quick, "x time", "", how))
    how = f"the worst of match, insert and evict, {SMALL} to {LARGE} nodes"
    return [*rows, Row("index.growth", worst, "x time", "", how), _size_row(rng)]


def _size_row(rng: np.random.Generator) -> Row:
    """Tracing allocations is exact and slow: so it is done on a tree of its own."""
    nodes = 20_000
    index = Index(nodes)
    tracemalloc.start()
    _fill(index, rng, nodes)
    size = tracemalloc.get_traced_memory()[0] / index.nodes()
    tracemalloc.stop()
    return Row(
        "index.node_bytes",
        size,
        "bytes",
        "",
        f"traced allocations per node of {PAGE} tokens, {nodes} nodes",
    )


def _time_match(index: Index, tokens: Tokens) -> float:
    found: list[int] = []
    seconds = _time(lambda: found.append(index.match(tokens)))
    if found != [len(tokens)]:
        raise RuntimeError(f"{found} of {len(tokens)} tokens were found")
    return seconds


def _time_insert(index: Index, rng: np.random.Generator) -> float:
    index.make_room(1)  # so that insertion is timed, and not eviction with it
    tokens = _random(rng, PAGE)
    return _time(lambda: index.insert(tokens))


def _refill(index: Index, rng: np.random.Generator) -> None:
    while index.cache.pool.free:
        index.insert(_random(rng, PAGE))


# Small parts


def _fill(index: Index, rng: np.random.Generator, nodes: int) -> list[Tokens]:
    """Add short prompts, eight to a shared first page, until there are about `nodes` nodes.

    Returns a thousand of the prompts, spread evenly over the time of their insertion.
    """
    have, prompts, every = index.nodes(), [], max(nodes // 1000, 1)
    while have < nodes:
        stem = _random(rng, PAGE)
        for _ in range(min(8, nodes - have - 1)):
            tokens = np.concatenate([stem, _random(rng, PAGE)])
            index.insert(tokens)
            have += 1
            if have % every == 0:
                prompts.append(tokens)
        have += 1
    return prompts


def _random(rng: np.random.Generator, size: int) -> Tokens:
    return rng.integers(100, 40_000, size, dtype=np.int32)


def _time(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _median(action: Callable[[], object], times: int) -> float:
    return statistics.median(_time(action) for _ in range(times))
