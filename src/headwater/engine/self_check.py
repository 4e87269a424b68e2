"""The check at load: our attention over the pool against the model's own eager attention.

    prompt   [0 ........ 13) [13 ..... 24)      prefilled in two chunks, pages in scattered order
    branch A                               a a  first A alone, then A and B over the shared
    branch B                               b    prompt, with tails of 2 and 1 tokens

A model that passes calls our attention once a layer, with the tensors it expects, and lands on the
same logits; a model with arithmetic we do not know differs by far more than rounding does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headwater.engine.attention import Forward
from headwater.engine.attention_plan import plan_attention
from headwater.engine.costs import costs_for
from headwater.engine.kernels import kernel_for
from headwater.engine.kv import KVPool
from headwater.engine.model import Model
from headwater.errors import ModelRefused
from headwater.schedule.step import Segment, SlotRun, Step

_CUT, _PROMPT, _PAGE = 13, 24, 4

# Largest difference of a logit, as a part of the largest logit: far above rounding in the format,
# far below what another arithmetic does.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 8e-2}


def self_check(model: Model) -> None:
    """Raise ModelRefused unless attention over the pool gives the model's own logits."""
    branches = _branches(model.facts.vocabulary)
    with torch.inference_mode():
        ours = _over_pool(model, branches)
        theirs = _eager(model, branches)
    if ours.shape != theirs.shape:
        raise ModelRefused("This model does not compute logits for chosen rows alone.")
    apart = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    if not apart <= _TOLERANCE.get(model.facts.dtype, 1e-3):
        raise ModelRefused(
            f"This model's attention is not the one known here: logits differ by {apart:.1%} "
            "from its own."
        )


def _branches(vocabulary: int) -> list[list[int]]:
    """A and B, which share the prompt; spread over the vocabulary, always the same."""
    prompt = [(7919 * at + 13) % vocabulary for at in range(_PROMPT)]
    return [[*prompt, *((104729 * (b + 2) + at) % vocabulary for at in range(2))] for b in (0, 1)]


def _over_pool(model: Model, branches: Sequence[Sequence[int]]) -> Tensor:
    """Logits `[row, vocabulary]`: of the prompt's last token, A's first, A's second, B's first."""
    pool = KVPool(model.facts.kv_format, pages=16, page_size=_PAGE, device=model.device)
    kernel = kernel_for(pool.device, pool.form.dtype, pool.form.head_size)
    # Reads for long runs must be used by short ones too, or the check would check only the tails.
    costs = replace(costs_for(pool, model.facts.heads), call=3, part=3)
    rows: list[Tensor] = []
    for step, keep in _steps(branches):
        plan = plan_attention(step, costs, pool)
        forward = Forward(pool, plan, torch.tensor(step.slots).to(pool.device), kernel)
        rows.append(model.logits(step.tokens, step.positions, forward, keep))
        if forward.layers != list(range(model.facts.layers)):
            raise ModelRefused("This model does not call its attention once for every layer.")
    return torch.cat(rows).float()


def _steps(branches: Sequence[Sequence[int]]) -> list[tuple[Step, list[int]]]:
    """The steps, each with the rows whose logits it yields."""
    # Every other page, from the back: no two pages of the prompt are neighbours.
    slots = [(14 - 2 * (at // _PAGE)) * _PAGE + at % _PAGE for at in range(_PROMPT)]
    tails = [[_PAGE, _PAGE + 1], [3 * _PAGE]]
    prompt = branches[0][:_PROMPT]
    rest = _PROMPT - _CUT
    causal = [_segment(slots[:_CUT], 0, _CUT, causal=True)]
    steps = [(_step(prompt[:_CUT], range(_CUT), slots[:_CUT], causal), list[int]())]
    over = [_segment(slots[:_CUT], 0, rest), _segment(slots[_CUT:], 0, rest, causal=True)]
    steps.append((_step(prompt[_CUT:], range(_CUT, _PROMPT), slots[_CUT:], over), [rest - 1]))
    for lengths in ([1], [2, 1]):
        rows = range(len(lengths))
        segments = [_segment(slots, 0, len(rows))]
        segments += [_segment(tails[b][: lengths[b]], b, b + 1) for b in rows]
        positions = [_PROMPT + length - 1 for length in lengths]
        tokens = [branches[b][positions[b]] for b in rows]
        own = [tails[b][lengths[b] - 1] for b in rows]
        steps.append((_step(tokens, positions, own, segments), list(rows)))
    return steps


def _segment(slots: Sequence[int], begin: int, end: int, *, causal: bool = False) -> Segment:
    return Segment(tuple(SlotRun(slot, 1) for slot in slots), begin, end, causal)


def _step(
    tokens: Sequence[int], positions: Sequence[int], slots: list[int], segments: list[Segment]
) -> Step:
    return Step(0, list(tokens), list(positions), slots, segments, samples=[], copies=[])


def _eager(model: Model, branches: Sequence[Sequence[int]]) -> Tensor:
    """The same logits by the model's own attention over whole sequences."""
    with model.own_attention() as net:
        ids = torch.tensor(branches, device=model.device)
        logits = net(input_ids=ids, use_cache=False).logits.float()
    a, b = logits
    return torch.stack([a[_PROMPT - 1], a[_PROMPT], a[_PROMPT + 1], b[_PROMPT]])
