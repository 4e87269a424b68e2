"""Loading, refusing and replacing: folders are written by the test, nothing is fetched."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoConfig

from headwater.engine.load import choose_device, choose_dtype, load_model
from headwater.engine.refusals import refuse_unsupported
from headwater.engine.self_check import self_check
from headwater.errors import BadSetting, ModelNotFound, ModelRefused
from tests.engine.steps import tiny_model

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    tiny_model("llama").net.save_pretrained(tmp_path)
    return tmp_path


def test_a_loaded_model_knows_its_facts(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    (folder / "tokenizer_config.json").write_text('{"eos_token": {"content": "<end>"}}')
    added = [{"id": 9, "content": "<end>"}, {"id": 8, "content": "<start>"}]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    loaded = load_model(folder, torch.float32, CPU)
    facts = loaded.facts
    assert facts.architecture == "LlamaForCausalLM"
    assert (facts.layers, facts.heads, facts.kv_heads, facts.head_size) == (2, 4, 2, 16)
    assert (facts.vocabulary, facts.context) == (97, 512)
    assert set(facts.eos) >= {5, 6, 9}
    assert facts.kv_format.token_bytes == 2 * 2 * 2 * 16 * 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_check_at_load_passes_in_every_number_format(folder, dtype):
    assert load_model(folder, choose_dtype(dtype, CPU), CPU).facts.dtype == getattr(torch, dtype)


def test_no_model_there(tmp_path):
    with pytest.raises(ModelNotFound, match=r"config\.json is missing"):
        load_model(tmp_path, torch.float32, CPU)


@pytest.mark.parametrize("name", ["int3", "float64", "", "torch.float32"])
def test_an_unknown_number_format_is_a_bad_setting(name):
    with pytest.raises(BadSetting, match="must be auto or one of float32, bfloat16, float16"):
        choose_dtype(name, CPU)


@pytest.mark.parametrize("name", ["gpu", "cuda:0", "mps", "", "CPU"])
def test_an_unknown_device_is_a_bad_setting(name):
    with pytest.raises(BadSetting, match="must be auto, cpu or cuda"):
        choose_device(name)


def test_a_device_that_is_not_there_is_a_bad_setting(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadSetting, match="no CUDA device here"):
        choose_device("cuda")
    assert choose_device("auto") == CPU


@pytest.mark.parametrize(("hardware", "number"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_bfloat16_where_the_gpu_multiplies_it(monkeypatch, hardware, number):
    """An older GPU emulates it, which torch calls supported unless it is asked exactly."""

    def supported(including_emulation=True):
        return hardware or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert choose_dtype("auto", torch.device("cuda")) is number


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


def put(model, source):
    model.put_weights(model.fitting_weights(source))


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
    put(one, state)
    assert all(torch.equal(a, state[name]) for name, a in one.net.state_dict().items())
    third = tiny_model("llama", seed=3)
    third.net.save_pretrained(tmp_path)
    put(one, tmp_path)
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
        put(model, state)
    assert all(torch.equal(a, before[name]) for name, a in model.net.state_dict().items())


def test_tied_weights_may_come_under_one_name_but_not_with_two_values():
    model = tiny_model("llama", seed=5, tie_word_embeddings=True)
    state = {name: tensor + 1 for name, tensor in model.net.state_dict().items()}
    embedding = "model.embed_tokens.weight"
    put(model, {name: each for name, each in state.items() if name != "lm_head.weight"})
    assert torch.equal(model.net.state_dict()["lm_head.weight"], state[embedding])
    state["lm_head.weight"] = state[embedding] * 2
    with pytest.raises(ModelRefused, match="two values"):
        put(model, state)


def test_weights_of_another_model_are_refused(tmp_path):
    model = tiny_model("llama", seed=6)
    other = tiny_model("llama", seed=7, rms_norm_eps=0.5)
    other.net.save_pretrained(tmp_path)
    with pytest.raises(ModelRefused, match="another model: rms_norm_eps"):
        put(model, tmp_path)
