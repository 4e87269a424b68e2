"""Replacing a loaded model's weights in place, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from headwater.errors import ModelRefused

# Entries of a configuration that do not change what the network computes.
_NEUTRAL = ("_name_or_path", "dtype", "transformers_version", "architectures", "use_cache")


def replace_weights(net: PreTrainedModel, source: Path | Mapping[str, Tensor]) -> None:
    """Overwrite the weights of `net` by those of a model folder or of a state dict.

    Raises ModelRefused, with nothing changed, unless names and shapes are exactly those of `net`.
    Between the check and the last copy nothing can fail for a reason that lies in the source. The
    price is that both sets of weights are in memory at once; reading the new ones tensor by tensor
    would need half, and leave a broken model behind a damaged file.
    """
    state = fitting_weights(net, source)
    current = net.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            current[name].copy_(tensor)


def fitting_weights(
    net: PreTrainedModel, source: Path | Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """The tensors of a source, read into memory. Raises ModelRefused unless they fit `net`."""
    state = _read(net, source) if isinstance(source, Path) else source
    _check_fits(net.state_dict(), state)
    return state


def _read(net: PreTrainedModel, folder: Path) -> Mapping[str, Tensor]:
    """Load through transformers, which knows how older files name their tensors."""
    try:
        other: nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=net.dtype)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelRefused(f"The new weights cannot be read from {folder}: {error}") from error
    assert isinstance(other, PreTrainedModel)
    mine, its = (each.config.to_dict() for each in (net, other))
    for name in sorted(mine.keys() | its.keys()):
        if name not in _NEUTRAL and mine.get(name) != its.get(name):
            raise ModelRefused(
                f"The new weights are of another model: {name} is {its.get(name)!r} there and "
                f"{mine.get(name)!r} here."
            )
    return other.state_dict()


def _check_fits(current: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    unknown = sorted(state.keys() - current.keys())
    if unknown:
        raise ModelRefused(f"The new weights hold {unknown[0]}, which the model does not have.")
    for name, tensor in current.items():
        given = [state[alias] for alias in _aliases(name, current) if alias in state]
        if not given:
            raise ModelRefused(f"The new weights lack {name}.")
        for each in given:
            if each.shape != tensor.shape:
                raise ModelRefused(
                    f"The new weights' {name} has the shape {tuple(each.shape)} instead of "
                    f"{tuple(tensor.shape)}."
                )
            if not torch.equal(each, given[0]):
                raise ModelRefused(
                    f"The new weights give {name} two values, but the model ties it to another."
                )


def _aliases(name: str, current: Mapping[str, Tensor]) -> list[str]:
    """All names under which the tensor `name` is known; tied weights have several."""
    address = current[name].data_ptr()
    return [other for other, tensor in current.items() if tensor.data_ptr() == address]
