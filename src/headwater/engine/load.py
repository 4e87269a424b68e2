"""Loading a model folder: choose device and number format, refuse what cannot be exact, check."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from headwater.engine import attention
from headwater.engine.facts import facts_of
from headwater.engine.model import Model
from headwater.engine.refusals import refuse_unsupported
from headwater.engine.self_check import self_check
from headwater.errors import ModelNotFound, ModelRefused

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(folder: Path, dtype: str = "auto", device: str = "auto") -> Model:
    """Load a model folder for `device` (cpu, cuda, auto) in `dtype` (a name in DTYPES, auto).

    Raises ModelNotFound when no model lies there and ModelRefused when it cannot be served
    exactly, by its configuration or by its logits.
    """
    where = choose_device(device)
    number = choose_dtype(dtype, where)
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"There is no model in {folder}: config.json is missing.")
    config = AutoConfig.from_pretrained(folder)
    refuse_unsupported(config)
    facts = facts_of(config, folder, number)
    try:
        net = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=number, attn_implementation=attention.NAME
        )
    except ValueError as error:
        raise ModelRefused(f"transformers cannot load the model in {folder}: {error}") from error
    model = Model(net.to(where).eval(), facts)
    self_check(model)
    return model


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelRefused("No CUDA device is available; use --device cpu.")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where hardware multiplies it, else float32.

    A CPU without such units emulates bfloat16, slower than float32 and no more exact.
    """
    if name == "auto":
        emulated = device.type == "cpu" and not _cpu_multiplies_bfloat16()
        return torch.float32 if emulated else torch.bfloat16
    if name not in DTYPES:
        raise ModelRefused(
            f"The number format {name!r} is unknown; use one of {', '.join(DTYPES)}."
        )
    return DTYPES[name]


def _cpu_multiplies_bfloat16() -> bool:
    units = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(units.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
