"""The KV pool: where the keys and values of all computed tokens lie.

One tensor `[layer, K or V, slot, KV head, head size]`. Why this order:

- A token's heads stay together, so a run of slots is one block of memory per layer and attention
  reads it in place as a strided view. Heads-first would make each *head* contiguous instead (about
  3 % faster to read, measured) but writing or copying one token would touch every head apart.
- With all layers in one tensor, `tokens[:, :, first:first + n]` is a stored chunk as the tiers keep
  it (layer, K/V, token, head, dim): loading and storing are one indexing operation.

Slots are addressed flat: slot = page × page size + offset in the page. Behind them lies one more
page, the sink. A row whose KV is cached already writes there; nothing ever reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwater.schedule.step import Copy


@dataclass(frozen=True, slots=True)
class KVFormat:
    """What one token's KV is: heads and sizes per layer, and the number format."""

    layers: int
    kv_heads: int
    head_size: int
    dtype: torch.dtype

    @property
    def layer_bytes(self) -> int:
        """Bytes of one token's K and V in one layer."""
        return 2 * self.kv_heads * self.head_size * self.dtype.itemsize

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's K and V in all layers."""
        return self.layers * self.layer_bytes

    def pages_in(self, room: int, page_size: int) -> int:
        """How many pages fit in `room` bytes, the sink page not counted."""
        return max(0, room // (self.token_bytes * page_size) - 1)


class KVPool:
    """`pages` pages of `page_size` slots on one device, and the sink behind them."""

    def __init__(
        self, form: KVFormat, pages: int, page_size: int = 16, device: str | torch.device = "cpu"
    ) -> None:
        if pages < 1 or page_size < 1:
            raise ValueError(f"a KV pool of {pages} pages of {page_size} slots holds nothing")
        self.form = form
        self.pages = pages
        self.page_size = page_size
        # Empty, not zeroed: filling would commit the whole pool's memory at start. That is safe
        # only because no slot is read before it is written, not even masked: 0 × NaN is NaN, so
        # padding repeats a slot of the row's own instead of naming a slot 0 (see attention_plan).
        self.tokens = torch.empty(
            (form.layers, 2, (pages + 1) * page_size, form.kv_heads, form.head_size),
            dtype=form.dtype,
            device=device,
        )

    @property
    def slots(self) -> int:
        """Slots that can hold KV; valid slots are [0, slots)."""
        return self.pages * self.page_size

    @property
    def sink(self) -> int:
        """The slot to name for a row whose KV is cached already."""
        return self.slots

    @property
    def device(self) -> torch.device:
        return self.tokens.device

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's keys and values, each `[slot, KV head, head size]`."""
        return self.tokens[index, 0], self.tokens[index, 1]

    def copy(self, copies: Iterable[Copy]) -> None:
        """Copy slots in all layers. Sources and targets of one call must not overlap."""
        for copy in copies:
            source = self.tokens[:, :, copy.source : copy.source + copy.count]
            self.tokens[:, :, copy.target : copy.target + copy.count].copy_(source)
