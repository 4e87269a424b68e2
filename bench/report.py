"""Rows, the machine they were measured on, and two ways to show them: JSON and a table."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.targets import TARGETS

FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")
"""Instruction sets that decide how fast a CPU multiplies matrices."""


@dataclass(frozen=True)
class Row:
    """One result. `value` is None when it could not be measured; `how` then says why."""

    id: str
    value: float | None
    unit: str
    against: str
    how: str


def median_ratio(tops: Sequence[float], bottoms: Sequence[float]) -> float:
    """The median over the rounds of each round's ratio.

    Not the ratio of two medians: what slows a round down slows both of its sides, and cancels.
    """
    return statistics.median(a / b for a, b in zip(tops, bottoms, strict=True))


def machine(threads: int) -> dict[str, Any]:
    """What one must know of a machine to judge a number from it."""
    cpu, flags = _cpu()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "flags": [flag for flag in FLAGS if flag in flags],
        "memory_gib": round(pages / 2**30, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "transformers": _version("transformers"),
        "threads": threads,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def to_json(rows: Iterable[Row], threads: int) -> bytes:
    """The document `--json` writes."""
    document = {"machine": machine(threads), "rows": [asdict(row) for row in rows]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def show(rows: Sequence[Row], console: Console) -> None:
    """A table for people, with each target and whether it was met; below it, how each was taken."""
    table = Table()
    for header in ("id", "value", "unit", "target", ""):
        right = header in ("value", "target")
        table.add_column(header, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        target = TARGETS.get(row.id)
        value = "—" if row.value is None else f"{row.value:.4g}"
        bound = "" if target is None else str(target)
        table.add_row(row.id, value, row.unit, bound, _verdict(row))
    console.print(table)
    for row in rows:
        against = f" against {row.against}" if row.against else ""
        console.print(f"{row.id}{against}: {row.how}", style="dim", highlight=False, markup=False)


def _verdict(row: Row) -> str:
    target = TARGETS.get(row.id)
    if target is None:
        return ""
    if row.value is None:
        return "[yellow]not measured[/]"
    return "[green]met[/]" if target.is_met(row.value) else "[red]missed[/]"


def _cpu() -> tuple[str, set[str]]:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine(), set()
    facts: dict[str, str] = {}
    for line in info.read_text().splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    model = f"{facts.get('model name', platform.machine())} (model {facts.get('model', '?')})"
    return model, set(facts.get("flags", "").split())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
