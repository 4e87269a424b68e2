"""Loading, refusing and replacing: folders are written by the test, nothing is fetched."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoConfig

from headwater.engine.load import choose_dtype, load_model
from headwater.engine.refusals import refuse_unsupported
from headwater.engine.self_check import self_check
from headwater.errors import ModelNotFound, ModelRefused
from tests.engine.steps import tiny_model


@pytest.fixture
def folder(tmp_path, model):
    model.net.save_pretrained(tmp_path)
    return tmp_path


def test_a_loaded_model_knows_its_facts(folder, model):
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    (folder / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end>"}}')
    added = [{"id": 9, "content": "<end>"}, {"id": 8, "content": "<start>"}]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    loaded = load_model(folder, "float32", "cpu")
    facts = loaded.facts
    assert facts.architecture == "LlamaForCausalLM"
    assert (facts.layers, facts.heads, facts.kv_heads, facts.head_size) == (2, 4, 2, 16)
    assert (facts.vocabulary, facts.context) == (97, 512)
    assert set(facts.eos) >= {5, 6, 9}
    assert facts.kv_format.token_bytes == 2 * 2 * 2 * 16 * 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_check_at_load_passes_in_every_number_format(folder, dtype):
    assert load_model(folder, dtype, "cpu").facts.dtype == getattr(torch, dtype)


def test_no_model_there(tmp_path):
    with pytest.raises(ModelNotFound, match=r"config\.json is missing"):
        load_model(tmp_path)


def test_unknown_number_format():
    with pytest.raises(ModelRefused, match="'int3' is unknown"):
        choose_dtype("int3", torch.device("cpu"))


def test_auto_is_half_precision_on_a_gpu():
    assert choose_dtype("auto", torch.device("cuda")) is torch.bfloat16


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        ("mistral", {"sliding_window": 64}, "sliding window"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64}, "sliding window"),
        ("gemma2", {}, "sliding window"),
        ("gemma2", {"sliding_window": None, "layer_types": ["full_attention"] * 26}, "caps"),
        ("gpt_oss", {}, "sliding window"),
        ("t5", {}, "encoder-decoder"),
        ("deepseek_v3", {}, "latent"),
        ("mamba", {}, "recurrent state"),
        ("qwen3_next", {}, "recurrent state"),
        ("bloom", {}, "ALiBi"),
        ("falcon", {"alibi": True}, "ALiBi"),
        ("llava", {}, "more than text"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "cannot be reused"),
    ],
)
def test_configurations_that_are_refused(kind, changes, why):
    config = AutoConfig.for_model(kind, **changes)
    with pytest.raises(ModelRefused, match=why) as caught:
        refuse_unsupported(config)
    assert str(caught.value).endswith(".")


PLAIN = ["llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2", "olmo2"]


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_decoders_are_accepted(kind):
    changes = {"sliding_window": None} if kind == "mistral" else {}
    refuse_unsupported(AutoConfig.for_model(kind, **changes))


def test_the_self_check_passes_plain_models(any_model):
    self_check(any_model)


def test_the_self_check_refuses_other_arithmetic():
    """A model whose eager attention is not ours: here every layer scales its scores otherwise."""
    model = tiny_model("llama")
    for layer in model.net.model.layers:
        attention = layer.self_attn
        forward = attention.forward

        def other(*args, attention=attention, forward=forward, **kwargs):
            ours = attention.config._attn_implementation == "headwater"
            attention.scaling = 0.25 if ours else 0.2
            return forward(*args, **kwargs)

        attention.forward = other
    with pytest.raises(ModelRefused, match="logits differ by"):
        self_check(model)


def test_the_self_check_refuses_attention_it_does_not_see():
    model = tiny_model("llama")
    for layer in model.net.model.layers:
        layer.self_attn.layer_idx = 0
    with pytest.raises(ModelRefused, match="once for every layer"):
        self_check(model)


def test_weights_are_replaced_from_a_state_dict_and_from_a_folder(tmp_path):
    one, two = tiny_model("llama", seed=1), tiny_model("llama", seed=2)
    state = {name: tensor.clone() for name, tensor in two.net.state_dict().items()}
    one.replace_weights(state)
    assert all(torch.equal(a, state[name]) for name, a in one.net.state_dict().items())
    third = tiny_model("llama", seed=3)
    third.net.save_pretrained(tmp_path)
    one.replace_weights(tmp_path)
    pairs = zip(one.net.state_dict().values(), third.net.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    self_check(one)


@pytest.mark.parametrize("damage", ["missing", "unknown", "shape"])
def test_weights_that_do_not_fit_change_nothing(damage):
    model = tiny_model("llama", seed=4)
    before = {name: tensor.clone() for name, tensor in model.net.state_dict().items()}
    state = {name: tensor + 1 for name, tensor in before.items()}
    last = list(state)[-1]
    if damage == "missing":
        del state[last]
    elif damage == "unknown":
        state["another.weight"] = torch.zeros(1)
    else:
        state[last] = state[last][:-1]
    with pytest.raises(ModelRefused, match="The new weights"):
        model.replace_weights(state)
    assert all(torch.equal(a, before[name]) for name, a in model.net.state_dict().items())


def test_tied_weights_may_come_under_one_name_but_not_with_two_values():
    model = tiny_model("llama", seed=5, tie_word_embeddings=True)
    state = {name: tensor + 1 for name, tensor in model.net.state_dict().items()}
    embedding = "model.embed_tokens.weight"
    model.replace_weights({name: each for name, each in state.items() if name != "lm_head.weight"})
    assert torch.equal(model.net.state_dict()["lm_head.weight"], state[embedding])
    state["lm_head.weight"] = state[embedding] * 2
    with pytest.raises(ModelRefused, match="two values"):
        model.replace_weights(state)


def test_weights_of_another_model_are_refused(tmp_path):
    model = tiny_model("llama", seed=6)
    other = tiny_model("llama", seed=7, rms_norm_eps=0.5)
    other.net.save_pretrained(tmp_path)
    with pytest.raises(ModelRefused, match="another model: rms_norm_eps"):
        model.replace_weights(tmp_path)
