"""A model ready to be served: its folder, its network, its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headwater.engine.load import load_model
from headwater.engine.model import Model
from headwater.engine.sources.resolve import ModelFolder, resolve
from headwater.engine.tokenizer import Tokenizer


@dataclass(slots=True)
class LoadedModel:
    """Several engines may serve one; its weights can be replaced while only one does."""

    folder: ModelFolder
    model: Model
    tokenizer: Tokenizer
    engines: int = 0

    @classmethod
    def load(
        cls, model: str | Path | None = None, dtype: str = "auto", device: str = "auto"
    ) -> LoadedModel:
        """Find, fetch if need be, and load. Raises ModelNotFound or ModelRefused."""
        folder = resolve(model)
        return cls(folder, load_model(folder.path, dtype, device), Tokenizer(folder.path))
