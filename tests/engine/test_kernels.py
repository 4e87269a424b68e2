"""Kernels against the plain one, in the layouts attention hands them."""

from __future__ import annotations

import pytest
import torch

from headwater.engine import kernels
from headwater.engine.attention_reads import Partial, _merged, merge_into
from headwater.engine.kernels import kernel_for, plain

CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(params=CLOSE, ids=str)
def number(request):
    return request.param


def agree(ours, expected, close):
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one.float(), other.float(), atol=close, rtol=close)


def tensors(rows=7, keys=7, heads=3, dim=16, device="cpu", number=torch.float32):
    torch.manual_seed(rows)
    q = torch.randn(2, heads, rows, dim)
    # Token-major memory, as the pool's, and a head axis of stride 0, as grouped queries have.
    k, v = (torch.randn(2, keys, dim)[:, None].expand(-1, heads, -1, -1) for _ in "kv")
    return [each.to(device, number) for each in (q, k, v)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_the_devices_kernel_equals_plain(rows, causal, device, number):
    q, k, v = tensors(rows, rows, device=device, number=number)
    fast = kernel_for(device, number, q.shape[-1])
    ours, expected = (f(q, k, v, 0.3, None, causal=causal) for f in (fast, plain))
    agree(ours, expected, CLOSE[number])
    assert ours[1].dtype is torch.float32


def test_it_equals_plain_with_a_bias_for_each_batch_entry(device, number):
    q, k, v = tensors(3, 9, device=device, number=number)
    bias = torch.zeros(2, 1, 1, 16, dtype=number, device=device)[..., :9]  # as attention pads it
    bias[1, ..., 5:] = float("-inf")
    fast = kernel_for(device, number, q.shape[-1])
    ours, expected = (f(q, k, v, 0.3, bias, causal=False) for f in (fast, plain))
    agree(ours, expected, CLOSE[number])


def test_plain_is_float32_inside_whatever_comes_in(number):
    """Products of 100 would leave the range of float16, and bfloat16 cannot tell 257 from 256."""
    q, k, v = tensors(4, 6, dim=64, number=number)
    q, k = q * 100, k * 100
    out, lse = plain(q, k, v, 0.01, None, causal=False)
    exact, sums = plain(q.double(), k.double(), v.double(), 0.01, None, causal=False)
    torch.testing.assert_close(lse, sums.float(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(out, exact.to(number), rtol=CLOSE[number], atol=CLOSE[number])


def test_merged_parts_are_not_rounded_in_between():
    """Parts of one long run are merged, and merged again with what else the row reads."""
    torch.manual_seed(3)
    out = torch.randn(3, 1, 5, 16).bfloat16()
    merged = _merged(out, torch.randn(3, 1, 5))
    assert merged.out.dtype is torch.float32


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
    ("where", "capability", "dtype", "size", "name"),
    [
        ("cpu", None, torch.float32, 64, "cpu_flash"),
        ("cuda", (9, 0), torch.bfloat16, 64, "cuda_flash"),
        ("cuda", (8, 0), torch.float16, 64, "cuda_flash"),
        ("cuda", (8, 0), torch.float32, 64, "cuda_efficient"),
        ("cuda", (8, 0), torch.bfloat16, 512, "cuda_efficient"),
        ("cuda", (8, 0), torch.bfloat16, 60, "plain"),
        ("cuda", (7, 5), torch.float16, 64, "cuda_efficient"),
        ("cuda", (7, 5), torch.float32, 64, "cuda_efficient"),
        ("cuda", (7, 5), torch.bfloat16, 64, "plain"),
        ("meta", None, torch.float32, 64, "plain"),
    ],
)
def test_the_kernel_fits_the_device(monkeypatch, where, capability, dtype, size, name):
    monkeypatch.setattr(kernels, "_capability", lambda _: capability)
    assert kernel_for(torch.device(where), dtype, size).__name__ == name
