"""What a run of the benchmarks may be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """
    model: a model folder in the transformers layout; the default model when None.
    gguf: the GGUF file llama.cpp reads; the one the default model was made from when None.
    rounds: how often every measurement is repeated; each round measures every peer.
    threads: compute threads of every engine.
    peers: the only ones to measure beside us; all when None.
    say: told what is being measured, as it begins.
    """

    model: Path | None
    gguf: Path | None
    rounds: int
    threads: int
    peers: frozenset[str] | None
    say: Callable[[str], None]
