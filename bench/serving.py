"""What a user feels: time to the first token, and tokens a second, beside other engines.

One session starts every engine and keeps them all loaded. A round measures a verb on one engine
after the other, then the next verb, and the order of the engines turns from round to round; so each
ratio compares two measurements made seconds apart. No prompt is ever used twice.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.models import gguf_of, model_of
from bench.options import Options
from bench.peers.worker import PeerMissing, Worker
from bench.report import Row, median_ratio
from bench.serving_mixed import mixed

CACHED, OWN = 2048, 32
NEW = 33
"""Tokens drawn in a decode run. The first comes from the prompt; 32 are decoded."""

DTYPE, KV_GIB = "float32", 3.0


@dataclass(frozen=True)
class Entrant:
    """Who is measured how often. The engines without a target are slow, and get fewer rounds."""

    name: str
    label: str
    batches: tuple[int, ...]
    rounds: int


def entrants(rounds: int) -> tuple[Entrant, ...]:
    few = min(rounds, 2)
    return (
        Entrant("ours", "Headwater", (1, 8, 32), rounds),
        Entrant("vllm", "vLLM", (1, 8, 32), rounds),
        Entrant("vllm_default", "vLLM as it comes", (1, 8, 32), few),
        Entrant("llamacpp", "llama.cpp, 4-bit weights", (1, 8, 32), rounds),
        # Without sharing, 32 prompts of 2080 tokens each are minutes of prefill on two cores.
        Entrant("transformers", "transformers, no cache between requests", (1, 8), few),
        Entrant("transformers_cb", "transformers continuous batching", (1, 8), few),
    )


@dataclass
class Session:
    """The engines that run, why others do not, and what was measured.

    samples: (engine, measure) -> one value a round, None where it failed.
    """

    options: Options
    stack: contextlib.ExitStack
    rng: random.Random
    workers: dict[str, Worker] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, str], dict[int, float]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def prompt(self, size: int) -> list[int]:
        return [self.rng.randrange(100, 40_000) for _ in range(size)]

    def start(self, name: str) -> None:
        self.options.say(f"serving: loading {name}")
        try:
            model = gguf_of(self.options) if name == "llamacpp" else model_of(self.options)
            worker = self.stack.enter_context(Worker(name))
            who: dict[str, Any] = worker.call(
                "load", model=str(model), dtype=DTYPE, threads=self.options.threads, kv_gib=KV_GIB
            )
            worker.call("cold", tokens=self.prompt(512))  # the first run of anything is slow
        except PeerMissing as missing:
            self.missing[name] = str(missing)
        else:
            self.workers[name], self.versions[name] = worker, f"{who['name']} {who['version']}"

    def measure(
        self, name: str, measure: str, index: int, action: Callable[[Worker], float]
    ) -> None:
        """Take one sample. An engine that fails is out, with its reason, and the others go on."""
        if name not in self.workers:
            return
        try:
            self.samples[name, measure][index] = action(self.workers[name])
        except PeerMissing as missing:
            self.missing[name] = str(missing)
            self.workers.pop(name).close()


def run(options: Options) -> list[Row]:
    with contextlib.ExitStack() as stack:
        session = Session(options, stack, random.Random(0))
        field_ = entrants(options.rounds)
        for entrant in field_:
            if options.peers is None or entrant.name in {"ours", *options.peers}:
                session.start(entrant.name)
            else:
                session.missing[entrant.name] = "left out by --peers"
        for index in range(options.rounds):
            turn = index % len(field_)
            turned = (*field_[turn:], *field_[:turn])
            order = [e for e in turned if index < e.rounds and e.name in session.workers]
            options.say(f"serving: round {index + 1} of {options.rounds}")
            _round(session, order, index)
        rows = [
            *_target_rows(session, field_[1]),
            *_other_rows(session, field_[2:]),
            *_plain_rows(session, field_),
        ]
    return [*rows, mixed(options)]


def _round(session: Session, order: Sequence[Entrant], index: int) -> None:
    prefix = session.prompt(CACHED)
    for entrant in order:
        tokens = prefix + session.prompt(OWN)
        session.measure(entrant.name, "cold", index, partial(_first_token, "cold", [tokens]))
    for entrant in order:
        several = [prefix + session.prompt(OWN) for _ in range(3)]
        session.measure(entrant.name, "hit", index, partial(_first_token, "hit", several))
    for batch in (1, 8, 32):
        for entrant in order:
            if batch in entrant.batches:
                _decode(session, entrant.name, index, prefix, batch)


def _first_token(verb: str, prompts: Sequence[list[int]], worker: Worker) -> float:
    return statistics.median(float(worker.call(verb, tokens=tokens)) for tokens in prompts)


def _decode(session: Session, name: str, index: int, prefix: list[int], batch: int) -> None:
    """Tokens a second of decoding alone, and of the whole run.

    The same work with one new token is prefill and nothing else; the difference is decoding.
    """
    long, short = ([prefix + session.prompt(OWN) for _ in range(batch)] for _ in range(2))
    times: list[float] = []

    def decoded(worker: Worker) -> float:
        times.append(worker.call("decode", prompts=long, new_tokens=NEW))
        times.append(worker.call("decode", prompts=short, new_tokens=1))
        return batch * (NEW - 1) / (times[0] - times[1])

    session.measure(name, f"decode{batch}", index, decoded)
    session.measure(name, f"decode{batch}_e2e", index, lambda worker: batch * NEW / times[0])


# Rows

SHAPES = {
    "cold": f"first token of {CACHED + OWN} new tokens",
    "hit": f"first token, {CACHED} tokens cached and {OWN} new",
}
SHAPE_BATCH: dict[str, int | None] = {"cold": None, "hit": None}
for _batch in (1, 8, 32):
    for _end, _what in (("", "decode only"), ("_e2e", "prefill of the own tokens included")):
        SHAPES[f"decode{_batch}{_end}"] = (
            f"{_batch} x {NEW} tokens over {CACHED} shared and {OWN} own, {_what}"
        )
        SHAPE_BATCH[f"decode{_batch}{_end}"] = _batch


@dataclass(frozen=True)
class Ratio:
    """A row to be: `top`'s measure over `bottom`'s. One of the two is ours."""

    id: str
    measure: str
    top: str
    bottom: str
    against: str
    unit: str

    def row(self, session: Session) -> Row:
        """The median over the rounds in which both were measured."""
        tops, bottoms = (session.samples[name, self.measure] for name in (self.top, self.bottom))
        both = sorted(tops.keys() & bottoms.keys())
        if not both:
            reasons = [session.missing[n] for n in (self.top, self.bottom) if n in session.missing]
            return Row(self.id, None, self.unit, self.against, "; ".join(reasons) or "not measured")
        value = median_ratio([tops[i] for i in both], [bottoms[i] for i in both])
        other = session.versions[self.bottom if self.top == "ours" else self.top]
        how = (
            f"{SHAPES[self.measure]}; {DTYPE}, {session.options.threads} threads; {other}; "
            f"median of {len(both)} rounds"
        )
        return Row(self.id, value, self.unit, self.against, how)


def _speed_up(measure: str, other: Entrant) -> Ratio:
    """How much better we are: more tokens a second, or a first token in less time."""
    name = f"serving.{measure}_vs_{other.name}"
    if measure.startswith("decode"):
        return Ratio(name, measure, "ours", other.name, other.label, "x tokens/s")
    return Ratio(name, measure, other.name, "ours", other.label, "x faster")


def _target_rows(session: Session, vllm: Entrant) -> list[Row]:
    bare = "the bare forward in transformers"
    ratios = [
        Ratio("serving.hit_vs_vllm", "hit", "ours", "vllm", vllm.label, "x time"),
        Ratio("serving.hit_vs_bare", "hit", "ours", "transformers", bare, "x time"),
        *(_speed_up(measure, vllm) for measure in SHAPES if measure != "hit"),
    ]
    return [ratio.row(session) for ratio in ratios]


def _other_rows(session: Session, others: Sequence[Entrant]) -> list[Row]:
    return [
        _speed_up(measure, other).row(session)
        for other in others
        for measure, batch in SHAPE_BATCH.items()
        if (batch is None or batch in other.batches)
        and (other.name, measure) != ("transformers", "hit")  # that is `hit_vs_bare`
    ]


def _plain_rows(session: Session, field_: Sequence[Entrant]) -> list[Row]:
    """The values behind the ratios."""
    rows = []
    for entrant in field_:
        for measure, shape in SHAPES.items():
            values = session.samples[entrant.name, measure].values()
            if values:
                unit = "tokens/s" if measure.startswith("decode") else "s"
                how = f"{shape}; {session.versions[entrant.name]}; median of {len(values)} rounds"
                rows.append(
                    Row(
                        f"serving.{entrant.name}.{measure}",
                        statistics.median(values),
                        unit,
                        "",
                        how,
                    )
                )
    return rows
