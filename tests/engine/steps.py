"""From sequences to steps: a naive, separate way to build what the scheduler builds.

A `Sequence` knows its tokens and, for each computed position, the slot of its KV. `Lab.fork`
makes one that shares the slots of another up to a position. `step_of` compares slot lists to find
what the sequences of a step share; there is no tree, so it cannot share a mistake with one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from headwater.engine.attention import NAME, Forward
from headwater.engine.attention_plan import Costs, plan_attention
from headwater.engine.costs import costs_for
from headwater.engine.facts import ModelFacts
from headwater.engine.kernels import kernel_for
from headwater.engine.kv import KVPool
from headwater.engine.model import Model
from headwater.schedule.step import Copy, Sample, Segment, SlotRun, Step

VOCABULARY = 97
PAGE = 4


@dataclass
class Sequence:
    tokens: list[int]
    slots: list[int] = field(default_factory=list)  # one a computed position


@dataclass
class Work:
    """Compute the positions [begin, end) of a sequence; `hit`: their KV is cached already."""

    sequence: Sequence
    begin: int
    end: int
    hit: bool = False

    @property
    def context(self) -> list[int]:
        """Slots that are read by all rows of this work."""
        decodes = self.end - self.begin == 1
        return self.sequence.slots[: self.end if decodes else self.begin]


class Lab:
    """A model, a pool with pages handed out in random order, and the costs of attention."""

    def __init__(self, model: Model, pages: int = 256, seed: int = 0, **costs: int) -> None:
        self.model = model
        self.pool = KVPool(model.facts.kv_format, pages, PAGE, model.device)
        # Whatever nobody wrote is poison: a read of it shows at once.
        self.pool.tokens.fill_(float("nan"))
        self.costs: Costs = replace(costs_for(self.pool, model.facts.heads), **costs)
        self.free = list(range(pages))
        random.Random(seed).shuffle(self.free)
        self.copies: list[Copy] = []

    def sequence(self, length: int, seed: int) -> Sequence:
        draw = random.Random(seed)
        return Sequence([draw.randrange(VOCABULARY) for _ in range(length)])

    def fork(self, parent: Sequence, at: int, tokens: list[int]) -> Sequence:
        """Share the positions [0, at); slots in the page of `at` are copied by the next step."""
        whole = at - at % PAGE
        child = Sequence([*parent.tokens[:at], *tokens], parent.slots[:whole])
        self.grow(child, at)
        if at > whole:
            self.copies.append(Copy(parent.slots[whole], child.slots[whole], at - whole))
        return child

    def grow(self, sequence: Sequence, length: int) -> None:
        """Give the sequence slots up to `length`, page by page."""
        while len(sequence.slots) < length:
            at = len(sequence.slots)
            page = self.free.pop() if at % PAGE == 0 else sequence.slots[-1] // PAGE
            sequence.slots.append(page * PAGE + at % PAGE)

    def extend_run(self, sequence: Sequence, length: int) -> None:
        """Give an empty sequence slots that are one run."""
        pages = -(-length // PAGE)
        first = next(p for p in range(256) if set(range(p, p + pages)) <= set(self.free))
        self.free = [page for page in self.free if not first <= page < first + pages]
        sequence.slots.extend(range(first * PAGE, first * PAGE + length))

    def step(self, *works: Work, samples: list[Sample] | None = None) -> Step:
        for work in works:
            self.grow(work.sequence, work.end)
        copies, self.copies = self.copies, []
        return replace_step(step_of(works, self.pool.sink), copies=copies, samples=samples or [])

    def logits(self, step: Step) -> torch.Tensor:
        """Logits of all rows of a step, `[row, vocabulary]`."""
        with torch.inference_mode():
            self.pool.copy(step.copies)
            plan = plan_attention(step, self.costs, self.pool)
            kernel = kernel_for(self.pool.device, self.pool.form.dtype, self.pool.form.head_size)
            slots = torch.tensor(step.slots, device=self.pool.device)
            forward = Forward(self.pool, plan, slots, kernel)
            keep = range(len(step.tokens))
            return self.model.logits(step.tokens, step.positions, forward, keep)

    def expected(self, *works: Work) -> torch.Tensor:
        """The same rows by the model's own attention over each whole sequence."""
        rows = []
        with torch.inference_mode(), self.model.own_attention() as net:
            for work in works:
                ids = torch.tensor([work.sequence.tokens[: work.end]], device=self.pool.device)
                rows.append(net(input_ids=ids, use_cache=False).logits[0, work.begin :])
        return torch.cat(rows)

    def difference(self, *works: Work) -> float:
        """Run the works as one step; the largest difference from what is expected."""
        return (self.logits(self.step(*works)) - self.expected(*works)).abs().max().item()


def step_of(works: tuple[Work, ...], sink: int) -> Step:
    """Sequences that share a prefix must be neighbours in `works`."""
    starts = [sum(w.end - w.begin for w in works[:i]) for i in range(len(works) + 1)]
    segments: list[Segment] = []
    _share(works, 0, len(works), 0, starts, segments)
    for i, work in enumerate(works):
        if work.end - work.begin > 1:
            own = work.sequence.slots[work.begin : work.end]
            segments.append(Segment(runs_of(own), starts[i], starts[i + 1], True))
    rows = [(work, at) for work in works for at in range(work.begin, work.end)]
    return Step(
        id=0,
        tokens=[work.sequence.tokens[at] for work, at in rows],
        positions=[at for _, at in rows],
        slots=[sink if work.hit else work.sequence.slots[at] for work, at in rows],
        segments=segments,
        samples=[],
        copies=[],
    )


def _share(works, first, last, begin, starts, segments) -> None:
    """Segments of works [first, last), which share all slots of the positions [0, begin)."""
    contexts = [work.context for work in works[first:last]]
    end = min(len(context) for context in contexts)
    end = next(
        (at for at in range(begin, end) if len({context[at] for context in contexts}) > 1), end
    )
    if end > begin:
        runs = runs_of(contexts[0][begin:end])
        segments.append(Segment(runs, starts[first], starts[last], False))
    group = first
    while group < last:
        context = works[group].context
        until = group + 1
        if len(context) > end:
            while until < last and works[until].context[end : end + 1] == [context[end]]:
                until += 1
            _share(works, group, until, end, starts, segments)
        group = until


def runs_of(slots: list[int]) -> tuple[SlotRun, ...]:
    """One run a page, as a page table would have it: joining them is the engine's part."""
    runs: list[SlotRun] = []
    for slot in slots:
        if runs and slot % PAGE and runs[-1].first + runs[-1].count == slot:
            runs[-1] = SlotRun(runs[-1].first, runs[-1].count + 1)
        else:
            runs.append(SlotRun(slot, 1))
    return tuple(runs)


def replace_step(step: Step, **changes: object) -> Step:
    return Step(**{name: getattr(step, name) for name in step.__struct_fields__} | changes)


def tiny_model(
    kind: str, seed: int = 0, device: str | torch.device = "cpu", **changes: object
) -> Model:
    """A random model of a family: 2 layers, grouped-query heads where the family has them."""
    facts = ModelFacts(kind, 2, 4, 2, 16, VOCABULARY, 512, (0,), torch.float32)
    shape: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
    }
    if kind in ("gpt_neox", "gpt2"):
        facts = replace(facts, kv_heads=4)
    else:
        shape |= {"num_key_value_heads": 2, "head_dim": 16}
    if kind == "gpt2":
        shape = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4}
        shape |= {"n_positions": 512, "initializer_range": 0.3}
    config = AutoConfig.for_model(kind, **(shape | changes))
    torch.manual_seed(seed)
    net = AutoModelForCausalLM.from_config(config, attn_implementation=NAME)
    return Model(net.float().eval().to(device), facts)
