"""A GGUF file converted for real: a tiny model through the child process and back."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from headwater.engine.contract_of import contract_of
from headwater.engine.sources.resolve import resolve
from headwater.errors import ModelRefused

HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 32, 4, 2, 64, 2
TOKENS = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "ab", "cd"]
SHAPES = {
    "attn_norm": (HIDDEN,),
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN // 2, HIDDEN),
    "attn_v": (HIDDEN // 2, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_norm": (HIDDEN,),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}


@pytest.fixture
def tiny_gguf(tmp_path):
    """A llama of two layers whose output is tied to its embedding."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    random = np.random.default_rng(0)
    names = {f"blk.{i}.{name}.weight": s for i in range(LAYERS) for name, s in SHAPES.items()}
    names |= {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for name, shape in names.items():
        writer.add_tensor(name, random.standard_normal(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.slow  # a child process imports torch and transformers
@pytest.mark.usefixtures("home")
def test_a_converted_model_loads_with_its_weights_and_tokenizer(tiny_gguf):
    found = resolve(tiny_gguf)
    contract = contract_of(found)
    assert (contract.meaning.layers, contract.meaning.kv_heads) == (LAYERS, KV_HEADS)
    weights = load_file(found.path / "model.safetensors")
    assert "lm_head.weight" not in weights, "tied weights are kept once"
    source = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tiny_gguf).tensors}
    embedding = torch.from_numpy(source["token_embd.weight"].copy())
    assert torch.equal(weights["model.embed_tokens.weight"], embedding)
    tokenizer = AutoTokenizer.from_pretrained(found.path)
    assert tokenizer("abc", add_special_tokens=False)["input_ids"] == [29, 5]
    model = AutoModelForCausalLM.from_pretrained(found.path)
    assert torch.equal(model.lm_head.weight, embedding)


@pytest.mark.slow  # a child process imports torch and transformers
@pytest.mark.usefixtures("home")
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ModelRefused, match="cannot be converted") as error:
        resolve(tmp_path / "bad.gguf")
    assert "\n" not in str(error.value)
