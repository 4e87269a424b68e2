"""Replacing a loaded model's weights in place, all of them or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headwater.engine.reading import read_config, read_net, refusing, require_finite
from headwater.errors import ModelRefused

# Entries of a configuration that do not change what the network computes.
_NEUTRAL = ("_name_or_path", "dtype", "transformers_version", "architectures", "use_cache")


def fitting_weights(
    net: PreTrainedModel, source: Path | Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """The tensors of a model folder or of a state dict, in memory and fit for `put_weights`.

    Raises ModelRefused unless names and shapes are exactly those of `net`.
    """
    state = _read(net, source) if isinstance(source, Path) else source
    with refusing("The new weights cannot be read"):
        _check_fits(net.state_dict(), state)
    return state


def put_weights(net: PreTrainedModel, fitting: Mapping[str, Tensor]) -> None:
    """Overwrite the weights of `net` by tensors that fit.

    Nothing can fail here for a reason that lies in their source. The price is that both sets of
    weights are in memory at once; reading the new ones tensor by tensor would need half, and leave
    a broken model behind a damaged file.
    """
    current = net.state_dict()
    with torch.no_grad():
        for name, tensor in fitting.items():
            current[name].copy_(tensor)


def _read(net: PreTrainedModel, folder: Path) -> Mapping[str, Tensor]:
    """Load through transformers, which knows how older files name their tensors."""
    config = read_config(folder)
    mine, its = (each.to_dict() for each in (net.config, config))
    for name in sorted(mine.keys() | its.keys()):
        if name not in _NEUTRAL and mine.get(name) != its.get(name):
            raise ModelRefused(
                f"The new weights are of another model: {name} is {its.get(name)!r} there and "
                f"{mine.get(name)!r} here."
            )
    return read_net(folder, config, net.dtype).state_dict()


def _check_fits(current: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    _check_tensors(state)
    unknown = sorted(state.keys() - current.keys())
    if unknown:
        raise ModelRefused(f"The new weights hold {unknown[0]}, which the model does not have.")
    aliases = defaultdict(list)  # by address: all names of a tensor; tied ones have several
    for name, tensor in current.items():
        aliases[tensor.data_ptr()].append(name)
    for name, tensor in current.items():
        given = [state[alias] for alias in aliases[tensor.data_ptr()] if alias in state]
        if not given:
            raise ModelRefused(f"The new weights lack {name}.")
        for each in given:
            if each.shape != tensor.shape:
                raise ModelRefused(
                    f"The new weights' {name} has the shape {tuple(each.shape)} instead of "
                    f"{tuple(tensor.shape)}."
                )
            if each.is_floating_point() != tensor.is_floating_point():
                raise ModelRefused(
                    f"The new weights' {name} is of {each.dtype} instead of {tensor.dtype}."
                )
            # In the model's own format: a number that float32 holds may be infinite in float16.
            require_finite([(name, each.to(tensor.dtype))], "The new weights")
            if each is not given[0] and not torch.equal(each.to(tensor), given[0].to(tensor)):
                raise ModelRefused(
                    f"The new weights give {name} two values, but the model ties it to another."
                )


def _check_tensors(state: Mapping[str, Tensor]) -> None:
    """A state dict comes from anywhere: whatever is no tensor with numbers is refused by name."""
    for name, each in state.items():
        if not isinstance(name, str) or not isinstance(each, Tensor):
            raise ModelRefused(f"The new weights hold {name!r}, which is no tensor of torch.")
        if each.is_meta or each.layout != torch.strided or each.is_quantized:
            raise ModelRefused(f"The new weights' {name} holds no plain numbers.")
