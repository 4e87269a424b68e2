"""Weights of linear layers in the layout that oneDNN's kernels read, beside the plain ones.

A CPU's general matrix product reads a weight line by line and rearranges it at every call, which
for the few rows of a decode step costs as much as the product. Rearranged once, a product of 8 rows
takes a half to a quarter of the time. This is what PyTorch's compiler does with constant weights
("freezing"); the modelling code is not touched, as little as by transformers' own quantizers, which
put other classes in the place of linear layers as well.

The plain weights stay: embeddings are tied to them, and they are what is replaced in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS = 32
"""For how many rows oneDNN chooses the layout. More rows, and fewer, are served well by it, too."""

_NUMBERS = (torch.float32, torch.bfloat16)


class PackedLinear(nn.Linear):
    """A linear layer that has its weight twice. The same numbers, added in another order."""

    packed: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - as its base names it
        if self.packed is None:
            return functional.linear(input, self.weight, self.bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            input, self.packed, self.bias, "none", [], ""
        )
        return out

    def pack(self) -> None:
        """Rearrange the weight as it is now."""
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), ROWS)


class Packing:
    """The linear layers of a network that can be packed, all of them or none."""

    def __init__(self, net: nn.Module, room: int) -> None:
        """room: bytes that packed weights may take; where that is less than they need, or the
        device is none of oneDNN's, nothing is packed."""
        layers = [module for module in net.modules() if type(module) is nn.Linear]
        needed = sum(layer.weight.numel() * layer.weight.element_size() for layer in layers)
        self._layers: list[PackedLinear] = []
        if needed <= room and all(map(_is_packable, layers)):
            for layer in layers:
                layer.__class__ = PackedLinear
                assert isinstance(layer, PackedLinear)
                self._layers.append(layer)
        self.renew()

    def __len__(self) -> int:
        return len(self._layers)

    def renew(self) -> None:
        """Pack what the weights are now."""
        with torch.inference_mode():
            for layer in self._layers:
                layer.pack()

    @contextmanager
    def unpacked(self) -> Iterator[None]:
        """Compute with the plain weights, for the time of the context."""
        packed = [layer.packed for layer in self._layers]
        for layer in self._layers:
            layer.packed = None
        try:
            yield
        finally:
            for layer, weight in zip(self._layers, packed, strict=True):
                layer.packed = weight


def _is_packable(layer: nn.Linear) -> bool:
    weight = layer.weight
    return (
        weight.device.type == "cpu"
        and weight.dtype in _NUMBERS
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
