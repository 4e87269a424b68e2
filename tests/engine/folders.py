"""Model folders that no engine could run, but whose facts can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "hidden_act": "silu",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "vocab_size": 300,
}


def make_folder(path: Path, weights: bytes = b"weights", **changes: object) -> Path:
    """A model folder with one weight file; a change to None removes an entry."""
    config = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(weights)
    (path / "tokenizer.json").write_text("{}")
    return path
