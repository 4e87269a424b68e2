"""Decoding a mixed batch on a pool that has been in use for long, against the same on a fresh one.

A cache is only as good as the memory it leaves behind: thousands of requests fragment the pool, and
attention that reads long runs in place slows down when runs are no longer long. The batch is what a
server sees: three groups that share a long prefix, and eight strangers, all of different lengths.
"""

from __future__ import annotations

import random
import statistics

from bench.models import model_of
from bench.options import Options
from bench.peers.worker import PeerMissing, Worker
from bench.report import Row, median_ratio

ID, UNIT, AGAINST = "serving.decode_mixed", "x tokens/s", "the same on a fresh pool"
REQUESTS = 3_000
KV_GIB = 0.6
"""About 14,000 tokens of the default model: the batch fits, and the churn turns it over often."""

NEW = 33
GROUPS, MEMBERS, STRANGERS = 3, 4, 8


def mixed(options: Options) -> Row:
    try:
        return _mixed(options)
    except PeerMissing as missing:
        return Row(ID, None, UNIT, AGAINST, str(missing))


def _mixed(options: Options) -> Row:
    rng = random.Random(1)
    old, new = [], []
    with _started(options) as aged:
        options.say(f"serving: ageing a pool with {REQUESTS} requests")
        churned = int(aged.call("churn", 3600.0, requests=REQUESTS, seed=0))
        for index in range(options.rounds):
            options.say(f"serving: mixed batch, round {index + 1} of {options.rounds}")
            if index:  # what the last round left behind is young: age it
                aged.call("churn", requests=REQUESTS // 10, seed=index)
            with _started(options) as fresh:
                new.append(_speed(fresh, rng))
            old.append(_speed(aged, rng))
    how = (
        f"{GROUPS} groups of {MEMBERS} with a long prefix each and {STRANGERS} strangers, decode "
        f"only; pool of {KV_GIB} GiB, {REQUESTS} requests and {churned} prompt tokens old: "
        f"{statistics.median(old):.1f} tokens/s, fresh {statistics.median(new):.1f}; "
        f"median of {options.rounds} rounds"
    )
    return Row(ID, median_ratio(old, new), UNIT, AGAINST, how)


def _started(options: Options) -> Worker:
    worker = Worker("ours")
    try:
        worker.call(
            "load",
            model=str(model_of(options)),
            dtype="float32",
            threads=options.threads,
            kv_gib=KV_GIB,
        )
        worker.call("cold", tokens=list(range(100, 400)))  # the first run of anything is slow
    except PeerMissing:
        worker.close()
        raise
    return worker


def _speed(worker: Worker, rng: random.Random) -> float:
    """Tokens a second of decoding alone."""
    prompts = _batch(rng)
    full = worker.call("decode", prompts=prompts, new_tokens=NEW)
    # The prompts are cached now, so this run is told apart by other tails of the same lengths.
    other = [prompt[:-8] + [rng.randrange(100, 40_000) for _ in range(8)] for prompt in prompts]
    return len(prompts) * (NEW - 1) / (full - worker.call("decode", prompts=other, new_tokens=1))


def _batch(rng: random.Random) -> list[list[int]]:
    """Prompts of the mixed batch; the lengths are the same every time, the tokens are not."""
    sizes = random.Random(2)

    def tokens(size: int) -> list[int]:
        return [rng.randrange(100, 40_000) for _ in range(size)]

    prompts = []
    for _ in range(GROUPS):
        prefix = tokens(sizes.randrange(700, 1300))
        prompts += [prefix + tokens(sizes.randrange(20, 200)) for _ in range(MEMBERS)]
    prompts += [tokens(sizes.randrange(50, 500)) for _ in range(STRANGERS)]
    return prompts
