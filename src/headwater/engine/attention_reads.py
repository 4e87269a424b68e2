"""The four ways to read a piece of KV, each over some rows of the step.

A read attends its rows to its piece alone and returns a `Partial`: the output and the log-sum-exp
of every query head. Partials over disjoint pieces merge to the exact attention over all of them.

Grouped-query heads are stacked as rows of their KV head rather than the KV repeated for them, so a
piece is read once for `group × rows` queries:

    q [row, KV head, group, dim]  ->  [KV head, (row, group), dim]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headwater.engine.kernels import Kernel

Rows = slice | Tensor


class Partial(NamedTuple):
    """Attention of some rows to some of their KV.

    out: `[row, KV head, group, dim]`, in the pool's format or in float32.
    lse: `[row, KV head, group]` in float32.
    """

    out: Tensor
    lse: Tensor


class Layer(NamedTuple):
    """What one layer's attention has at hand.

    q: `[row, KV head, group, dim]`, new_k, new_v: `[KV head, row, dim]`, of the step's rows.
    k, v: `[slot, KV head, dim]`, the pool's views of this layer.
    """

    q: Tensor
    new_k: Tensor
    new_v: Tensor
    k: Tensor
    v: Tensor
    scale: float
    kernel: Kernel


@dataclass(frozen=True, slots=True)
class _Slice:
    """A read of consecutive rows of the step."""

    rows: slice

    @property
    def count(self) -> int:
        return int(self.rows.stop - self.rows.start)


@dataclass(frozen=True, slots=True)
class OwnRows(_Slice):
    """The rows attend causally to each other, by their fresh keys and values.

    These equal what was just written to their slots; taken from the forward pass they are
    contiguous however scattered the slots are. Group heads cannot be stacked here, for the row
    decides the mask: KV heads become the batch, and the group shares keys by a stride of 0.
    """

    def attend(self, layer: Layer) -> Partial:
        q = layer.q[self.rows].permute(1, 2, 0, 3)
        shape = (-1, q.shape[1], -1, -1)
        k = layer.new_k[:, None, self.rows].expand(shape)
        v = layer.new_v[:, None, self.rows].expand(shape)
        out, lse = layer.kernel(q, k, v, layer.scale, None, causal=True)
        return Partial(out.permute(2, 0, 1, 3), lse.permute(2, 0, 1))


@dataclass(frozen=True, slots=True)
class InPlace(_Slice):
    """The rows attend to slots [first, first + length), read as a view of the pool.

    The run is cut into parts of `size` slots, `step` apart, that run in parallel (Flash-Decoding);
    `mask` hides where they overlap.
    """

    first: int
    length: int
    step: int
    size: int
    mask: Tensor | None

    def attend(self, layer: Layer) -> Partial:
        q = _stacked(layer.q[self.rows])
        run = slice(self.first, self.first + self.length)
        # unfold: [slot, head, dim] -> [part, head, dim, slot in part], without a copy
        k = layer.k[run].unfold(0, self.size, self.step).transpose(2, 3)
        v = layer.v[run].unfold(0, self.size, self.step).transpose(2, 3)
        q = q.expand(k.shape[0], -1, -1, -1)
        out, lse = layer.kernel(q, k, v, layer.scale, self.mask, causal=False)
        return _unstacked(_merged(out, lse), self.count)


@dataclass(frozen=True, slots=True)
class Gathered(_Slice):
    """The rows attend to scattered slots, gathered once for all of them."""

    index: Tensor

    def attend(self, layer: Layer) -> Partial:
        q = _stacked(layer.q[self.rows])
        k = layer.k.index_select(0, self.index).transpose(0, 1)[None]
        v = layer.v.index_select(0, self.index).transpose(0, 1)[None]
        out, lse = layer.kernel(q, k, v, layer.scale, None, causal=False)
        return _unstacked(_merged(out, lse), self.count)


@dataclass(frozen=True, slots=True)
class Tails:
    """Each of `count` rows attends to slots of its own, gathered and padded to one batch.

    index: slots `[count × width]`; mask: 0 or -inf, `[count, 1, 1, width]`.
    """

    rows: Rows
    count: int
    index: Tensor
    mask: Tensor | None

    def attend(self, layer: Layer) -> Partial:
        q = layer.q[self.rows]
        k = layer.k.index_select(0, self.index).unflatten(0, (self.count, -1)).transpose(1, 2)
        v = layer.v.index_select(0, self.index).unflatten(0, (self.count, -1)).transpose(1, 2)
        return Partial(*layer.kernel(q, k, v, layer.scale, self.mask, causal=False))


Read = OwnRows | InPlace | Gathered | Tails


def _stacked(q: Tensor) -> Tensor:
    """`[row, KV head, group, dim]` -> `[1, KV head, row × group, dim]`."""
    return q.transpose(0, 1).flatten(1, 2)[None]


def _unstacked(part: Partial, rows: int) -> Partial:
    """`[KV head, row × group, ...]` -> `[row, KV head, group, ...]`."""
    out, lse = (each.unflatten(1, (rows, -1)).transpose(0, 1) for each in part)
    return Partial(out, lse)


def _merged(out: Tensor, lse: Tensor) -> Partial:
    """Merge parts along the batch axis: `[part, head, query, dim]` -> `[head, query, dim]`.

    Float32, as the weights are: this is merged again, and rounding in between would add up.
    """
    if out.shape[0] == 1:
        return Partial(out[0], lse[0])
    if out.shape[0] == 2:  # on two cores every time, and an eighth of the general way's time
        weight = torch.sigmoid(lse[1] - lse[0])[..., None]
        total = torch.lerp(out[0].float(), out[1].float(), weight)
        return Partial(total, torch.logaddexp(lse[0], lse[1]))
    weight = lse.softmax(0)[..., None]
    return Partial((out * weight).sum(0), lse.logsumexp(0))


def merge_into(total: Partial, part: Partial, rows: Rows) -> None:
    """Add `part` to the running `total` at `rows`, exactly (FlashAttention's online softmax).

    Of two partials the second weighs exp(b) / (exp(a) + exp(b)) = sigmoid(b - a), a and b being
    their log-sum-exps. A total that is still empty has a = -inf and takes the part as it is.
    """
    if isinstance(rows, slice):
        out, lse = total.out[rows], total.lse[rows]
    else:
        out, lse = total.out.index_select(0, rows), total.lse.index_select(0, rows)
    weight = torch.sigmoid(part.lse - lse)[..., None]
    out.lerp_(part.out.to(out.dtype), weight)
    torch.logaddexp(lse, part.lse, out=lse)
    if not isinstance(rows, slice):
        total.out.index_copy_(0, rows, out)
        total.lse.index_copy_(0, rows, lse)
