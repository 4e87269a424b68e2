"""Kernels against the plain one, in the layouts attention hands them."""

from __future__ import annotations

import pytest
import torch

from headwater.engine.attention_reads import Partial, merge_into
from headwater.engine.kernels import cpu_flash, kernel_for, plain


def tensors(rows=7, keys=7, heads=3, dim=16):
    torch.manual_seed(rows)
    q = torch.randn(2, heads, rows, dim)
    # Token-major memory, as the pool's, and a head axis of stride 0, as grouped queries have.
    k, v = (torch.randn(2, keys, dim)[:, None].expand(-1, heads, -1, -1) for _ in "kv")
    return q, k, v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_flash_equals_plain(rows, causal):
    q, k, v = tensors(rows, rows)
    ours, expected = (f(q, k, v, 0.3, None, causal=causal) for f in (cpu_flash, plain))
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_flash_equals_plain_with_a_bias_for_each_batch_entry():
    q, k, v = tensors(3, 9)
    bias = torch.zeros(2, 1, 1, 9)
    bias[1, ..., 5:] = float("-inf")
    ours, expected = (f(q, k, v, 0.3, bias, causal=False) for f in (cpu_flash, plain))
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [slice(1, 4), torch.tensor([0, 3])], ids=["slice", "index"])
def test_merging_parts_is_attention_to_their_union(rows):
    """Keys [0, 4) for all rows, keys [4, 9) for some of them."""
    q, k, v = tensors(5, 9, heads=1)
    scale = 0.5

    def partial(keys, at):
        out, lse = plain(q[:, :, at], k[:, :, keys], v[:, :, keys], scale, None, causal=False)
        return Partial(out[0].transpose(0, 1)[:, None], lse[0].transpose(0, 1)[:, None])

    whole, some = slice(0, 5), list(range(5))[rows] if isinstance(rows, slice) else rows.tolist()
    total = Partial(torch.zeros(5, 1, 1, 16), torch.full((5, 1, 1), float("-inf")))
    merge_into(total, partial(slice(0, 4), whole), whole)
    merge_into(total, partial(slice(4, 9), rows), rows)
    for row in range(5):
        keys = slice(0, 9) if row in some else slice(0, 4)
        expected = partial(keys, slice(row, row + 1))
        torch.testing.assert_close(total.out[row], expected.out[0])
        torch.testing.assert_close(total.lse[row], expected.lse[0])


@pytest.mark.parametrize(
    ("device", "dtype", "size", "name"),
    [
        ("cpu", torch.float32, 64, "cpu_flash"),
        ("cuda", torch.bfloat16, 64, "cuda_flash"),
        ("cuda", torch.float32, 64, "cuda_efficient"),
        ("cuda", torch.bfloat16, 512, "cuda_efficient"),
        ("cuda", torch.bfloat16, 60, "plain"),
        ("meta", torch.float32, 64, "plain"),
    ],
)
def test_the_kernel_fits_the_device(device, dtype, size, name):
    assert kernel_for(torch.device(device), dtype, size).__name__ == name
