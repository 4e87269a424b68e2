"""A whole model in a folder: random weights, a byte-level tokenizer, a chat template."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

CONTEXT = 256
END = "<|end|>"
_TEXT = ["the quick brown fox jumps over the lazy dog and says hello to the world"] * 4
_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 16}

FAMILIES: dict[str, dict[str, object]] = {
    "llama": _SHAPE | _GROUPED,
    "mistral": _SHAPE | _GROUPED | {"sliding_window": None},
    "qwen2": _SHAPE | _GROUPED,
    "qwen3": _SHAPE | _GROUPED,
    "olmo2": _SHAPE | _GROUPED,
    "gpt_neox": _SHAPE,
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
    "gpt_bigcode": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT},
}


def make_model(folder: Path, seed: int = 0, kind: str = "llama") -> Path:
    """Write a model of a family: 2 layers, 320 tokens of which 256 are single bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = make_tokenizer(folder)
    config = AutoConfig.for_model(
        kind,
        vocab_size=vocabulary,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=1,
        **FAMILIES[kind],
    )
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def make_tokenizer(folder: Path) -> int:
    """Write a tokenizer; how many tokens it has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|start|>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    (folder / "chat_template.jinja").write_text(_TEMPLATE)
    return int(tokenizer.get_vocab_size())
