"""Costs of a device, which decide how attention reads: CPUs measured, CUDA by arithmetic."""

from __future__ import annotations

import torch

from headwater.engine.attention_plan import Costs
from headwater.engine.kv import KVPool

# How many bytes of one layer's KV can be gathered in the time of one more kernel call with its
# merge. CPU, measured with 192 values a token on one AVX512 core: reading in place overtakes
# gathering between 384 and 512 tokens in float32 and at about 384 in bfloat16, that is between 290
# and 690 KB. CUDA, by arithmetic alone: some ten launches of 5 µs at 1 TB/s and more.
_CALL_BYTES = {"cpu": 384 << 10, "cuda": 16 << 20}

# Merging a part costs about as much as attending one query row to 256 keys.
_PART_TOKENS = 256

# Query rows of one task: the tile of the flash kernels.
_BLOCK = {"cpu": 32, "cuda": 64}

# Most bytes of one layer's KV gathered at once.
_BATCH_BYTES = 256 << 20


def costs_for(pool: KVPool, heads: int) -> Costs:
    """Costs of attending `heads` query heads over `pool`."""
    kind = "cuda" if pool.device.type == "cuda" else "cpu"
    per_token = pool.form.layer_bytes
    return Costs(
        heads=pool.form.kv_heads,
        group=heads // pool.form.kv_heads,
        lanes=_lanes(pool.device),
        block=_BLOCK[kind],
        call=max(1, _CALL_BYTES[kind] // per_token),
        part=_PART_TOKENS,
        batch=max(1, _BATCH_BYTES // per_token),
    )


def _lanes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).multi_processor_count)
    return torch.get_num_threads()
