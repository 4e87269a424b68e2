"""Loading a model folder: choose device and number format, refuse what cannot be exact, check."""

from __future__ import annotations

from pathlib import Path

import torch

from headwater.engine.facts import facts_of
from headwater.engine.memory import memory_of
from headwater.engine.model import Model
from headwater.engine.reading import read_config, read_net, refusing
from headwater.engine.refusals import refuse_unsupported
from headwater.engine.self_check import self_check
from headwater.errors import BadSetting

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICES = ("cpu", "cuda")


def load_model(folder: Path, number: torch.dtype, where: torch.device) -> Model:
    """Load a model folder onto a device in a number format.

    Raises ModelNotFound when no model lies there and ModelRefused when it cannot be served
    exactly, by its configuration or by its logits.
    """
    config = read_config(folder)
    refuse_unsupported(config)
    with refusing(f"The configuration in {folder} makes no sense"):
        facts = facts_of(config, folder, number)
    net = read_net(folder, config, number)
    model = Model(net.to(where).eval(), facts, memory_of(where) // 4)
    with refusing(f"The code of the model {config.model_type!r} does not run on cached KV"):
        self_check(model)
    return model


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one. Raises BadSetting for what is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in DEVICES:
        raise BadSetting(f"device is {name!r}, but must be auto, {' or '.join(DEVICES)}.")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadSetting("device is 'cuda', but there is no CUDA device here.")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where hardware multiplies it, else float32.

    Without such units bfloat16 is emulated, slower than float32 and no more exact. Float16 would be
    fast on older GPUs, but its range ends at 65,504, which activations of models that were trained
    in bfloat16 exceed: what nobody asked for must not overflow. Raises BadSetting for another name.
    """
    if name == "auto":
        return torch.bfloat16 if _multiplies_bfloat16(device) else torch.float32
    if name not in DTYPES:
        raise BadSetting(f"dtype is {name!r}, but must be auto or one of {', '.join(DTYPES)}.")
    return DTYPES[name]


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return _cpu_multiplies_bfloat16()


def _cpu_multiplies_bfloat16() -> bool:
    units = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(units.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
