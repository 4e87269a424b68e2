"""From logits to tokens: one batch of tensor operations and one copy to the host.

Each row is computed by itself: the cut (top-k, top-p) becomes a *floor*, the least logit that may
still be drawn, and the token is found by inverting the row's cumulative distribution in token
order. A floor needs sorted values but never sorted indices, so ties cannot make the result depend
on the sort. Drawing by Gumbel noise would need a random number for each token of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwater.engine.sampling import Sampled, SamplingParams, TokenLogprobs, uniform

_HEAD = 1024

Nucleus = Callable[[Tensor, Tensor], Tensor]
"""(scaled logits `[row, vocabulary]`, probability `[row, 1]`) -> the least logit that may still be
drawn `[row, 1]`: that of the nucleus of this probability (Holtzman et al. 2020)."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One token to draw: from which row of the logits, how, and under which counter."""

    row: int
    params: SamplingParams
    choice: int
    position: int


def nucleus_for(device: torch.device) -> Nucleus:
    """The fastest way to a nucleus that a device has without waiting for it."""
    return nucleus_by_head if device.type == "cpu" else nucleus_by_sorting


def sample(logits: Tensor, draws: Sequence[Draw], nucleus: Nucleus) -> Sampled:
    """Draw from `logits` `[row, vocabulary]`. Copies to the host once, unless `nucleus` does."""
    if not draws:
        return Sampled([], [])
    tokens = logits.argmax(-1)[_index([draw.row for draw in draws], logits)]
    random = [at for at, draw in enumerate(draws) if not draw.params.greedy]
    if random:
        drawn = _drawn(logits, [draws[at] for at in random], nucleus)
        tokens = tokens.index_copy(0, _index(random, logits), drawn)
    asked = [draw.params.logprobs for draw in draws]
    if all(wanted is None for wanted in asked):
        return Sampled(tokens.tolist(), [None] * len(draws))
    table = _logprobs(logits, draws, tokens)
    # Float64 holds token ids exactly, so that ids and log-probs leave in one copy.
    packed = torch.cat([tokens[:, None].double(), table], 1).tolist()
    return Sampled(
        [int(row[0]) for row in packed],
        [None if k is None else _unpacked(row, k) for row, k in zip(packed, asked, strict=True)],
    )


def score(logits: Tensor, targets: Sequence[int], alternatives: int) -> list[TokenLogprobs]:
    """How likely each row of `logits` `[row, vocabulary]` held its target. Copies once."""
    tokens = _index(targets, logits)
    table = _table(logits, tokens, alternatives)
    packed = torch.cat([tokens[:, None].double(), table], 1).tolist()
    return [_unpacked(row, alternatives) for row in packed]


def _drawn(logits: Tensor, draws: Sequence[Draw], nucleus: Nucleus) -> Tensor:
    """Tokens drawn with a temperature above 0, `[draw]`."""
    params = [draw.params for draw in draws]
    scaled = logits[_index([draw.row for draw in draws], logits)].float()
    scaled = scaled / _column([each.temperature for each in params], scaled)
    scaled = _cut_top_k(scaled, [each.top_k for each in params])
    scaled = _cut_top_p(scaled, [each.top_p for each in params], nucleus)
    # Summed in float64: 50,000 float32 additions would shift late tokens by about 1e-5.
    cumulative = scaled.softmax(-1).cumsum(-1, dtype=torch.float64)
    chances = [uniform(draw.params.seed, draw.choice, draw.position) for draw in draws]
    target = _column(chances, cumulative) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True)[:, 0]
    return tokens.clamp(max=logits.shape[-1] - 1)  # past the end only if the logits are NaN


def _cut_top_k(scaled: Tensor, top_k: Sequence[int | None]) -> Tensor:
    """Logits below the row's k-th largest become -inf."""
    rows = [row for row, k in enumerate(top_k) if k is not None]
    if not rows:
        return scaled
    kept = [min(k, scaled.shape[-1]) for k in top_k if k is not None]
    where = _index(rows, scaled)
    largest = scaled[where].topk(max(kept)).values
    floor = largest.gather(1, _index(kept, scaled)[:, None] - 1)
    return _cut(scaled, where, floor)


def _cut_top_p(scaled: Tensor, top_p: Sequence[float], nucleus: Nucleus) -> Tensor:
    """Logits below the nucleus of probability p become -inf."""
    rows = [row for row, p in enumerate(top_p) if p < 1]
    if not rows:
        return scaled
    where = _index(rows, scaled)
    subset = scaled[where]
    return _cut(scaled, where, nucleus(subset, _column([top_p[row] for row in rows], subset)))


def nucleus_by_sorting(scaled: Tensor, mass: Tensor) -> Tensor:
    """Sort every row whole; asks the device nothing."""
    return _floor(scaled.sort(descending=True).values, scaled, mass)[0]


def nucleus_by_head(scaled: Tensor, mass: Tensor) -> Tensor:
    """Sort the likeliest tokens, and whole rows only where those are not enough.

    On a CPU a full sort of 49,152 logits takes 3 ms, the first 1,024 take 0.4; they hold the
    nucleus of nearly every row. Which rows the others are must be asked: on a CPU that is no copy
    worth the name, on a GPU it would be a second one a step.
    """
    head = scaled.topk(min(_HEAD, scaled.shape[-1])).values
    floor, reached = _floor(head, scaled, mass)
    for row in (~reached).nonzero()[:, 0].tolist():
        floor[row] = nucleus_by_sorting(scaled[row : row + 1], mass[row])
    return floor


def _floor(largest: Tensor, scaled: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """The least logit in the nucleus `[row, 1]`, and whether `largest` reaches its mass `[row]`.

    A token is in the nucleus when those before it do not reach the mass yet.
    """
    chance = (largest - scaled.logsumexp(-1, keepdim=True)).exp()
    reached = chance.cumsum(-1, dtype=torch.float64)
    inside = (reached - chance < mass).sum(-1, keepdim=True).clamp(min=1)
    return largest.gather(1, inside - 1), reached[:, -1] >= mass.reshape(-1)


def _cut(scaled: Tensor, where: Tensor, floor: Tensor) -> Tensor:
    subset = scaled[where]
    return scaled.index_copy(0, where, subset.masked_fill(subset < floor, float("-inf")))


def _logprobs(logits: Tensor, draws: Sequence[Draw], tokens: Tensor) -> Tensor:
    """`[draw, 1 + k + k]` in float64: the drawn token's log-prob, the top k ids and log-probs.

    Computed for all draws once any asks: rows that do not are dropped on the host.
    """
    most = max(draw.params.logprobs or 0 for draw in draws)
    return _table(logits[_index([draw.row for draw in draws], logits)], tokens, most)


def _table(logits: Tensor, tokens: Tensor, most: int) -> Tensor:
    rows = logits.float().log_softmax(-1)
    drawn = rows.gather(1, tokens[:, None])
    top = rows.topk(min(most, rows.shape[-1]))
    return torch.cat([drawn.double(), top.indices.double(), top.values.double()], 1)


def _unpacked(row: Sequence[float], wanted: int) -> TokenLogprobs:
    """row: token, its log-prob, then k ids and their k log-probs."""
    k = (len(row) - 2) // 2
    ids, values = row[2 : 2 + k], row[2 + k :]
    top = [(int(token), value) for token, value in zip(ids, values, strict=True)]
    return TokenLogprobs(row[1], top[:wanted])


def _index(values: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.int64).to(like.device)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype)[:, None].to(like.device)
