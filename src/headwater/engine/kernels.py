"""Attention kernels that also return the log-sum-exp, one per device.

A kernel attends queries `[batch, head, query, dim]` to keys and values `[batch, head, key, dim]`
and returns the output in the shape of the queries and the natural log of the softmax's denominator
`[batch, head, query]` in float32. With it, partial results over disjoint keys merge exactly
(FlashAttention, Dao et al. 2022). `bias` broadcasts to `[batch, head, query, key]`; `causal` lets
query i see keys 0..i and goes without a bias. Head dimensions may have stride 0.

PyTorch's public `scaled_dot_product_attention` does not return the log-sum-exp, hence the aten
operators it dispatches to.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

_ops = torch.ops.aten

_AMPERE = (8, 0)


class Kernel(Protocol):
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, *, causal: bool
    ) -> tuple[Tensor, Tensor]: ...


def kernel_for(device: torch.device, dtype: torch.dtype, head_size: int) -> Kernel:
    """The fastest kernel that is exact for these tensors."""
    if device.type == "cpu":
        return cpu_flash
    if device.type != "cuda" or head_size % 8:
        return plain
    if _capability(device) < _AMPERE:  # neither flash nor anything in bfloat16 is compiled for it
        return plain if dtype is torch.bfloat16 else cuda_efficient
    half = dtype in (torch.float16, torch.bfloat16)
    return cuda_flash if half and head_size <= 256 else cuda_efficient


def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def cpu_flash(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, *, causal: bool
) -> tuple[Tensor, Tensor]:
    out, lse = _ops._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, attn_mask=bias, scale=scale
    )
    return out, lse


def cuda_flash(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, *, causal: bool
) -> tuple[Tensor, Tensor]:
    if bias is not None:  # the flash kernel takes no bias
        return cuda_efficient(q, k, v, scale, bias, causal=causal)
    out, lse, *_ = _ops._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal, False, scale=scale
    )
    return out, lse


def cuda_efficient(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, *, causal: bool
) -> tuple[Tensor, Tensor]:
    if bias is not None:
        bias = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    out, lse, *_ = _ops._scaled_dot_product_efficient_attention(
        q, k, v, bias, True, 0.0, causal, scale=scale
    )
    # The kernel rounds the query axis of the log-sum-exp up to a multiple of 32.
    return out, lse[:, :, : q.shape[2]]


def plain(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """Two matrix products and a softmax in float32: any device, any size, and the reference."""
    scores = torch.matmul(q.float(), k.float().transpose(2, 3)) * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    out = torch.matmul(scores.softmax(-1), v.float()).to(v.dtype)
    return out, scores.logsumexp(-1)
