"""Attention over the KV pool, as an attention function of transformers.

Importing this module registers "headwater" with transformers. A model loaded with
`attn_implementation="headwater"` then runs unpatched: its own code computes queries, keys and
values, calls `attend`, and goes on. What the step needs travels as a keyword argument of the
model's forward, which transformers hands on to every attention call; there is no global state.

No mask function is registered, on purpose: transformers builds no mask for an attention it knows no
mask for, and a mask over the whole step would be as wrong as it is large.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from headwater.engine.attention_plan import AttentionPlan
from headwater.engine.attention_reads import Layer, Partial, merge_into
from headwater.engine.kernels import Kernel
from headwater.engine.kv import KVPool
from headwater.errors import ModelRefused

NAME = "headwater"
"""The name under which transformers knows the attention function, and of its keyword argument."""

# Keyword arguments with which a model asks for another softmax than the plain one.
_UNKNOWN_MATH = ("sliding_window", "softcap", "s_aux", "position_bias", "alibi")


@dataclass(slots=True)
class Forward:
    """One forward pass: where its rows' KV goes and what they read.

    slots: `[row]`, the pool slot of each row. `layers` collects which layers have attended, which
    is how the check at load knows that the model calls its attention as we expect.
    """

    pool: KVPool
    plan: AttentionPlan
    slots: Tensor
    kernel: Kernel
    layers: list[int] = field(default_factory=list)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    headwater: Forward | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Write the rows' KV to their slots, then attend every row to its segments.

    query `[1, head, row, dim]`, key and value `[1, KV head, row, dim]`; returns `[1, row, head,
    dim]` and no weights.
    """
    if headwater is None:
        raise ModelRefused("This model does not hand arguments on to its attention.")
    _refuse_unknown_math(attention_mask, options)
    index = getattr(module, "layer_idx", None)
    kv_heads, rows, dim = _checked_shape(headwater, query, key, value)
    if not isinstance(index, int) or index >= headwater.pool.form.layers:
        raise ModelRefused("This model's attention layers are not numbered.")
    k, v = headwater.pool.layer(index)
    k.index_copy_(0, headwater.slots, key[0].transpose(0, 1))
    v.index_copy_(0, headwater.slots, value[0].transpose(0, 1))
    layer = Layer(
        q=query[0].unflatten(0, (kv_heads, -1)).permute(2, 0, 1, 3),
        new_k=key[0],
        new_v=value[0],
        k=k,
        v=v,
        scale=dim**-0.5 if scaling is None else scaling,
        kernel=headwater.kernel,
    )
    headwater.layers.append(index)
    out = _execute(headwater.plan, layer)
    return out.reshape(1, rows, -1, dim).to(query.dtype), None


def _execute(plan: AttentionPlan, layer: Layer) -> Tensor:
    """All rows' attention output, `[row, KV head, group, dim]`."""
    first, rest = plan.reads[0], plan.reads[1:]
    if not rest:
        return first.attend(layer).out
    if first.count == plan.rows:
        part = first.attend(layer)
        total = Partial(part.out.float(), part.lse)
    else:
        rest = plan.reads
        # Float32 whatever the model computes in: rounding after each of many merges would add up.
        total = Partial(
            layer.q.new_zeros(layer.q.shape, dtype=torch.float32),
            layer.q.new_full(layer.q.shape[:-1], float("-inf"), dtype=torch.float32),
        )
    for read in rest:
        merge_into(total, read.attend(layer), read.rows)
    return total.out


def _checked_shape(
    headwater: Forward, query: Tensor, key: Tensor, value: Tensor
) -> tuple[int, int, int]:
    form, rows = headwater.pool.form, headwater.plan.rows
    expected = (1, form.kv_heads, rows, form.head_size)
    fits = query.shape[0] == 1 and query.shape[2:] == expected[2:]
    if key.shape != expected or value.shape != expected or not fits:
        raise ModelRefused(
            f"This model's attention works on shapes {tuple(query.shape)}, {tuple(key.shape)} and "
            f"{tuple(value.shape)}, where keys and values of {expected} were expected."
        )
    return form.kv_heads, rows, form.head_size


def _refuse_unknown_math(attention_mask: Tensor | None, options: dict[str, object]) -> None:
    if attention_mask is not None:
        raise ModelRefused("This model brings an attention mask of its own.")
    for name in _UNKNOWN_MATH:
        if options.get(name) is not None:
            raise ModelRefused(f"This model's attention uses {name}, which is not supported.")


AttentionInterface.register(NAME, attend)
