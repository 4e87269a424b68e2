"""Models whose answers a test knows beforehand."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.engine.tiny import make_tokenizer

CONTEXT = 2048
SAYING = "the🙂é中д,fox."
"""What the parrot answers. No byte stands in it twice, and `the` and `fox` are tokens of their
own, which the parrot spells: its answer becomes other tokens when it is read again."""

TOOLS_AND_THINKING = (
    "{% if tools %}<|start|>tools\n{{ tools | tojson }}<|end|>\n{% endif %}"
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}"
    "{% for c in m.get('tool_calls', []) %}{{ c | tojson }}{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>\n{% endif %}"
    "{% endif %}"
)

_SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": 1,
}


def make_babbler(folder: Path, seed: int = 7) -> Path:
    """A model of random weights, for anything; its template knows no tools."""
    config = _config(folder)
    torch.manual_seed(seed)
    return _save(folder, AutoModelForCausalLM.from_config(config))


def make_parrot(folder: Path) -> Path:
    """A model that answers every chat with `SAYING`, a byte a token, and then ends.

    The next token depends on the last alone: from the line's end behind `assistant` to the first
    byte, from each byte to the next, and on through all other tokens for who does not let it end.
    """
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(_config(folder))
    (folder / "chat_template.jinja").write_text(TOOLS_AND_THINKING)
    spelled = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    said = [spelled.encode("\n").ids, *([each] for each in _bytes(spelled, SAYING)), [1]]
    order = [token for [token] in said]
    order += [token for token in range(model.config.vocab_size) if token not in order]
    with torch.no_grad():
        for layer in model.model.layers:  # what attention says is computed, and not heard
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        known = torch.nn.functional.normalize(torch.randn(len(order), 64), dim=1)
        model.model.embed_tokens.weight.copy_(known)
        following = [*order[1:], order[0]]
        model.lm_head.weight[following] = 10 * known[order]
    return _save(folder, model)


def _config(folder: Path) -> AutoConfig:
    folder.mkdir(parents=True, exist_ok=True)
    return AutoConfig.for_model("llama", vocab_size=make_tokenizer(folder), **_SHAPE)


def _save(folder: Path, model: AutoModelForCausalLM) -> Path:
    model.save_pretrained(folder)
    return folder


def _bytes(tokenizer: object, text: str) -> list[int]:
    """The tokens of a text's bytes, one each, whatever it would become as a whole."""
    from headwater.engine.tokenizer import ByteLevel

    spelling = {byte: character for character, byte in ByteLevel()._byte.items()}
    return [tokenizer.token_to_id(spelling[byte]) for byte in text.encode()]
