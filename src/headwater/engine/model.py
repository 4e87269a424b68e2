"""A decoder-only transformers model, run unpatched over the KV pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headwater.engine import attention, weights
from headwater.engine.attention import Forward
from headwater.engine.facts import ModelFacts
from headwater.engine.packing import Packing


class Model:
    """A network with its facts. `load.load_model` makes one that has been checked."""

    def __init__(self, net: PreTrainedModel, facts: ModelFacts, room: int = 0) -> None:
        """room: bytes of memory in which weights may be kept a second time, for speed."""
        self.net = net
        self.facts = facts
        self.packing = Packing(net, room)

    @property
    def device(self) -> torch.device:
        return self.net.device

    def logits(
        self, tokens: Sequence[int], positions: Sequence[int], forward: Forward, keep: Sequence[int]
    ) -> Tensor:
        """Run all rows and return the logits of the rows `keep`, `[kept, vocabulary]`.

        The output layer is the largest matrix of a small model; it multiplies kept rows only.
        """
        ids, at, kept = (
            torch.tensor(each, dtype=torch.int64).to(self.device)
            for each in (tokens, positions, keep)
        )
        output = self.net(
            input_ids=ids[None],
            position_ids=at[None],
            use_cache=False,
            logits_to_keep=kept,
            **{attention.NAME: forward},
        )
        logits: Tensor = output.logits[0]
        return logits

    @contextmanager
    def own_attention(self) -> Iterator[PreTrainedModel]:
        """The network with its own eager attention and its plain weights, for the time of the
        context."""
        self.net.set_attn_implementation("eager")
        try:
            with self.packing.unpacked():
                yield self.net
        finally:
            self.net.set_attn_implementation(attention.NAME)

    def fitting_weights(self, source: Path | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Read and check other weights for this network. Raises ModelRefused if they do not fit."""
        return weights.fitting_weights(self.net, source)

    def put_weights(self, fitting: Mapping[str, Tensor]) -> None:
        """Put weights that fit in place; no step may be running.

        KV computed before is the old weights' and must not be used after.
        """
        weights.put_weights(self.net, fitting)
        self.packing.renew()
