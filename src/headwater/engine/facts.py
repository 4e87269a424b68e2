"""What the rest of the system must know about a model, read from its folder's configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedConfig

from headwater.engine.kv import KVFormat
from headwater.errors import ModelRefused


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Sizes and ids of a loaded model.

    heads: query heads; kv_heads divides it. context: most positions a sequence may have.
    eos: every token id the folder names as an end of sequence.
    """

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int
    eos: tuple[int, ...]
    dtype: torch.dtype

    @property
    def kv_format(self) -> KVFormat:
        return KVFormat(self.layers, self.kv_heads, self.head_size, self.dtype)


def facts_of(config: PreTrainedConfig, folder: Path, dtype: torch.dtype) -> ModelFacts:
    """Read the facts. Raises ModelRefused when one that is needed is not stated."""
    heads = _stated(config, "num_attention_heads")
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return ModelFacts(
        architecture=(config.architectures or [type(config).__name__])[0],
        layers=_stated(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=getattr(config, "head_dim", None) or _stated(config, "hidden_size") // heads,
        vocabulary=_stated(config, "vocab_size"),
        context=_stated(config, "max_position_embeddings"),
        eos=_eos(config, folder),
        dtype=dtype,
    )


def _stated(config: PreTrainedConfig, name: str) -> int:
    value = getattr(config, name, None)
    if type(value) is not int or value < 1:
        raise ModelRefused(f"This model's configuration gives no usable {name}: {value!r}.")
    return value


def _eos(config: PreTrainedConfig, folder: Path) -> tuple[int, ...]:
    """All ids named by the generation settings, the configuration or the tokenizer.

    The union, since they often disagree: a chat model's configuration names the end of a text and
    its tokenizer the end of a turn, and a model may end with either.
    """
    ids: set[int] = set(_as_ids(config.eos_token_id))
    if (folder / "generation_config.json").is_file():
        ids.update(_as_ids(_generation(folder).eos_token_id))
    ids.update(_tokenizer_eos(folder))
    return tuple(sorted(ids))


def _generation(folder: Path) -> GenerationConfig:
    return GenerationConfig.from_pretrained(folder, local_files_only=True)


def _as_ids(value: int | Iterable[int] | None) -> Iterable[int]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else value


def _tokenizer_eos(folder: Path) -> Iterable[int]:
    """The tokenizer's end token, from its two JSON files: loading a tokenizer takes longer."""
    name = _json(folder / "tokenizer_config.json").get("eos_token")
    name = name.get("content") if isinstance(name, dict) else name
    added = _json(folder / "tokenizer.json").get("added_tokens", ())
    return [token["id"] for token in added if token["content"] == name]


def _json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}
