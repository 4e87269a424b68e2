"""Reading a model folder through transformers: what lies there, whole, and nothing else.

transformers warns and goes on where a tensor is missing, asks on standard input whether code of the
folder may run, looks into a hub for what is not here, and keeps tensors as views of the file. None
of that may happen here: what is served must be what the digest of the folder's weights names, and
stay so while others write to the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from headwater.engine import attention
from headwater.errors import HeadwaterError, ModelNotFound, ModelRefused

_LONGEST = 300  # characters of another library's message that are worth reading


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn whatever a library raises meanwhile into ModelRefused, in one sentence.

    Of all kinds, since a damaged file makes transformers raise almost any of them.
    """
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:_LONGEST].rstrip(".") or "no reason given"
        raise ModelRefused(f"{what} ({type(error).__name__}: {reason}).") from error


def read_config(folder: Path) -> PreTrainedConfig:
    """The configuration of a model folder. Raises ModelNotFound or ModelRefused."""
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"There is no model in {folder}: config.json is missing.")
    with refusing(f"The configuration in {folder} cannot be read"):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    if getattr(config, "transformers_weights", None) is not None:
        raise ModelRefused(f"The configuration in {folder} names other weights than the usual.")
    if getattr(config, "quantization_config", None) is not None:
        raise ModelRefused(f"The weights in {folder} are quantized, which is not supported.")
    if (folder / "adapter_config.json").is_file():
        raise ModelRefused(f"{folder} holds an adapter, which is not supported; merge it first.")
    return config


def read_net(folder: Path, config: PreTrainedConfig, number: torch.dtype) -> PreTrainedModel:
    """The network of a model folder with its weights, in memory of its own.

    Raises ModelRefused unless the folder has every tensor of the model, in its shape and finite in
    the number format, and none that the model does not know.
    """
    with refusing(f"The model in {folder} cannot be loaded"):
        net, told = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=number,
            attn_implementation=attention.NAME,
            use_safetensors=True,  # the weights whose digest names the model's KV, and no others
            local_files_only=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # told below, in a better sentence
            output_loading_info=True,
        )
        own_memory(net)
    assert isinstance(net, PreTrainedModel)
    for kind, wrong in _WRONG.items():
        if told.get(kind):
            raise ModelRefused(f"The weights in {folder} {wrong} {_first(told[kind])}.")
    require_finite(net.state_dict().items(), f"The weights in {folder}")
    return net


# What transformers tells about loading; it leaves out tensors that it knows to be harmless.
_WRONG = {
    "missing_keys": "lack",
    "mismatched_keys": "have another shape than the configuration says for",
    "unexpected_keys": "hold what the model does not have:",
    "error_msgs": "cannot be read:",
}


def _first(told: Iterable[object]) -> str:
    first = min(str(each[0]) if isinstance(each, tuple) else str(each) for each in told)
    return " ".join(first.split())[:_LONGEST].rstrip(".")


def own_memory(net: PreTrainedModel) -> None:
    """Copy what lies in main memory, tensor by tensor; tied tensors stay tied.

    A tensor that needed no conversion is a view of the mapped file: rewriting the file would change
    the weights under their KV, and truncating it would kill the process.
    """
    copies: dict[tuple[object, ...], Tensor] = {}
    for tensor in chain(net.parameters(), net.buffers()):
        if tensor.device.type == "cpu":
            data = tensor.data
            key = (data.data_ptr(), data.dtype, data.shape, data.stride())
            if key not in copies:
                copies[key] = data.clone()
            tensor.data = copies[key]


def require_finite(tensors: Iterable[tuple[str, Tensor]], whose: str) -> None:
    """Raise ModelRefused for a NaN or an infinity: no answer of such a model means anything."""
    for name, tensor in tensors:
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ModelRefused(f"{whose} hold a number in {name} that is not finite.")
