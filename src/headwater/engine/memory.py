"""How much memory a device has, so that a wish for more is refused before anything is loaded."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from headwater.errors import BadSetting

# The limit of the container this runs in, which the machine's own size does not show (cgroup v2).
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def require_memory(wanted: int, device: torch.device) -> None:
    """Raise BadSetting for more bytes of KV than `device` could ever hold.

    It is a bound, not a forecast: what else lies in a machine's memory changes from moment to
    moment, and a pool is not committed until it is written. On CUDA it is what is free now.
    """
    there = memory_of(device)
    if wanted > there:
        raise BadSetting(
            f"kv_memory asks for {_shown(wanted)} of KV, but {device.type} has {_shown(there)}."
        )


def memory_of(device: torch.device) -> int:
    """Bytes: all of a machine's memory, or what is free on a CUDA device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, _container_limit() or machine)


def _container_limit() -> int | None:
    try:
        return int(_LIMIT.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _shown(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
