"""A folder can do nothing to an engine once it is loaded, and is refused when it is not whole."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from headwater import HeadwaterError, LoadedModel, ModelNotFound, ModelRefused
from headwater.engine.contract_of import contract_of
from tests.engine.test_api_weights import GREEDY, PROMPT, tokens
from tests.engine.tiny import make_model

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path, home):
    return make_model(tmp_path / "model", seed=3)


def load(folder):
    return LoadedModel.load(folder, "float32", "cpu")


def change(folder, change):
    """Apply a function to the dictionary of the folder's tensors."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file({k: v.clone() for k, v in tensors.items()}, folder / WEIGHTS, {"format": "pt"})


def entry(name, value):
    """A change of config.json."""

    def apply(folder):
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))

    return apply


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("damage", ["rewritten", "truncated"])
def test_a_file_that_changes_while_it_is_served_changes_nothing(
    engine, own, folder, damage, replaced
):
    hw = engine(own if replaced else load(folder))
    if replaced:
        hw.replace_weights(folder)
    expected = tokens(hw)
    file = folder / WEIGHTS
    size = file.stat().st_size
    with file.open("r+b") as opened:
        if damage == "rewritten":
            opened.seek(size // 2)
            opened.write(bytes(size // 2))
        else:
            opened.truncate(0)
    assert tokens(hw, domain="another") == expected


def test_tied_weights_stay_tied_in_memory_of_their_own(home):
    folder = make_model(home / "tied")
    entry("tie_word_embeddings", True)(folder)
    change(folder, lambda tensors: tensors.pop("lm_head.weight"))
    net = load(folder).model.net
    assert net.lm_head.weight.data_ptr() == net.model.embed_tokens.weight.data_ptr()


def lacking(tensors):
    tensors.pop("model.layers.1.mlp.up_proj.weight")


def wrong_shape(tensors):
    tensors["model.norm.weight"] = torch.ones(3)


def unexpected(tensors):
    tensors["model.another.weight"] = torch.ones(3)


def not_a_number(tensors):
    tensors["model.norm.weight"][0] = float("nan")


def infinite(tensors):
    tensors["lm_head.weight"][0, 0] = float("inf")


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lacking, "lack model.layers.1.mlp.up_proj.weight"),
        (wrong_shape, "another shape .* model.norm.weight"),
        (unexpected, "does not have: model.another.weight"),
        (not_a_number, "model.norm.weight that is not finite"),
        (infinite, "lm_head.weight that is not finite"),
    ],
)
def test_weights_that_are_not_the_models_are_refused(engine, own, folder, damage, why, replaced):
    change(folder, damage)
    with pytest.raises(ModelRefused, match=why):
        engine(own).replace_weights(folder) if replaced else load(folder)


def test_what_is_infinite_in_the_models_format_is_refused(folder):
    change(folder, lambda tensors: tensors["lm_head.weight"].fill_(1e6))
    with pytest.raises(ModelRefused, match="not finite"):
        LoadedModel.load(folder, "float16", "cpu")


def test_no_engine_joins_while_weights_are_being_replaced(engine, own, other):
    hw = engine(own)
    pieces = iter(hw.submit(PROMPT, **(GREEDY | {"max_tokens": 150})))
    next(pieces)
    changing = threading.Thread(target=hw.replace_weights, args=(other[0], "drain"))
    changing.start()
    while own._replacing is None:
        pass
    with pytest.raises(HeadwaterError, match="being replaced"):
        engine(own)
    list(pieces)
    changing.join()
    assert tokens(engine(own)) == tokens(engine(other[1]))


@pytest.mark.parametrize("state_dict", [False, True])
def test_a_later_engine_knows_the_weights_that_were_put(engine, own, other, state_dict):
    hw = engine(own)
    epoch = hw.replace_weights(other[1].model.net.state_dict() if state_dict else other[0])
    later = engine(own)
    assert later.stats().epoch == epoch == own.folder.weight_digest
    assert tokens(later) == tokens(hw)


def test_engines_are_counted_from_their_begin_to_their_end(engine, own):
    one, two = engine(own), engine(own)
    assert own.engines == 2
    one.close()
    one.close()
    assert own.engines == 1
    with pytest.raises(HeadwaterError):
        engine(own, context=10**6)
    assert own.engines == 1
    two.close()
    assert own.engines == 0


def test_a_failed_read_lets_others_join_again(engine, own, folder):
    (folder / WEIGHTS).write_bytes(b"")
    with pytest.raises(ModelRefused):
        engine(own).replace_weights(folder)
    assert tokens(engine(own))


def test_half_replaced_weights_are_never_served(engine, own, other, monkeypatch):
    hw = engine(own)
    with monkeypatch.context() as patch:
        patch.setattr(type(own.model), "put_weights", lambda *_: 1 / 0)
        with pytest.raises(HeadwaterError, match="ZeroDivisionError"):
            hw.replace_weights(other[0])
    with pytest.raises(HeadwaterError, match="load it again"):
        engine(own)


def test_weights_that_change_while_they_are_read_are_refused(folder, monkeypatch):
    from headwater.engine import loaded

    def meanwhile(*args):
        model = load_model(*args)
        change(folder, lambda tensors: tensors["lm_head.weight"].add_(1))
        return model

    load_model = loaded.load_model
    monkeypatch.setattr(loaded, "load_model", meanwhile)
    with pytest.raises(ModelRefused, match="changed while they were read"):
        load(folder)


def test_the_index_of_several_files_counts(folder):
    before = contract_of(load(folder).folder).digest()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert contract_of(load(folder).folder).digest() != before


def test_code_in_a_folder_is_never_run_or_asked_about(folder, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asks on standard input"))
    entry("model_type", "of_its_own")(folder)
    entry("auto_map", {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"})(folder)
    (folder / "code.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelRefused):
        load(folder)


@pytest.mark.parametrize("source", ["someone/a-model", 42, None, 1.5, [1]])
def test_replacing_by_what_is_no_model_is_not_found(engine, own, source):
    with pytest.raises(ModelNotFound):
        engine(own).replace_weights(source)


@pytest.mark.parametrize(
    "tensor",
    [np.ones(64, np.float32), torch.ones(64, device="meta"), None, torch.ones(64).to_sparse(),
     torch.ones(64, dtype=torch.int64), torch.ones(64, dtype=torch.complex64),
     torch.full((64,), torch.nan)],
    ids=["numpy", "meta", "none", "sparse", "int", "complex", "nan"],
)  # fmt: skip
def test_a_state_dict_of_other_things_is_refused(engine, own, tensor):
    state = own.model.net.state_dict() | {"model.norm.weight": tensor}
    with pytest.raises(ModelRefused, match="new weights"):
        engine(own).replace_weights(state)


def test_tied_weights_may_come_in_two_formats(engine, home):
    folder = make_model(home / "tied")
    entry("tie_word_embeddings", True)(folder)
    change(folder, lambda tensors: tensors.pop("lm_head.weight"))
    loaded = load(folder)
    state = dict(loaded.model.net.state_dict())
    half = state["lm_head.weight"].bfloat16()
    state |= {"lm_head.weight": half, "model.embed_tokens.weight": half.float()}
    engine(loaded).replace_weights(state)
    assert torch.equal(loaded.model.net.lm_head.weight, half.float())


def cut(folder):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


DAMAGES = {
    "weights truncated": cut,
    "weights empty": lambda folder: (folder / WEIGHTS).write_bytes(b""),
    "weights garbage": lambda folder: (folder / WEIGHTS).write_bytes(b"\x07" * 999),
    "config garbage": text("config.json", "{!"),
    "config list": text("config.json", "[]"),
    "config empty": text("config.json", "{}"),
    "config bytes": lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00"),
    "unknown model_type": entry("model_type", "of_the_future"),
    "no heads": entry("num_attention_heads", 0),
    "no layers": entry("num_hidden_layers", -1),
    "heads as text": entry("num_attention_heads", "4"),
    "size as a list": entry("hidden_size", [64]),
    "rope as a number": entry("rope_scaling", 5),
    "unknown rope": entry("rope_parameters", {"rope_type": "of_the_future"}),
    "unknown activation": entry("hidden_act", "of_the_future"),
    "unknown quantization": entry("quantization_config", {"quant_method": "of_the_future"}),
    "weights elsewhere": entry("transformers_weights", "../other.safetensors"),
    "an adapter": text("adapter_config.json", '{"base_model_name_or_path": "someone/a-model"}'),
}
BESIDE = {
    "architectures as a number": entry("architectures", 5),
    "tokenizer garbage": text("tokenizer.json", "{!"),
    "tokenizer empty": text("tokenizer.json", ""),
    "tokenizer nothing": text("tokenizer.json", "{}"),
    "tokenizer list": text("tokenizer.json", "[]"),
    "tokenizer config garbage": text("tokenizer_config.json", "{!"),
    "tokenizer config list": text("tokenizer_config.json", "[]"),
    "generation garbage": text("generation_config.json", "{!"),
    "generation list": text("generation_config.json", "[]"),
    "generation end as text": text("generation_config.json", '{"eos_token_id": "x"}'),
}


def one_sentence(error):
    message = str(error.value)
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize("damage", DAMAGES | BESIDE)
def test_a_damaged_folder_is_refused_in_one_sentence(folder, damage):
    (DAMAGES | BESIDE)[damage](folder)
    with pytest.raises((ModelRefused, ModelNotFound)) as error:
        load(folder)
    one_sentence(error)


@pytest.mark.parametrize("damage", DAMAGES)
def test_replacing_by_a_damaged_folder_is_refused_in_one_sentence(engine, own, folder, damage):
    hw = engine(own)
    before = tokens(hw)
    DAMAGES[damage](folder)
    with pytest.raises((ModelRefused, ModelNotFound)) as error:
        hw.replace_weights(folder)
    one_sentence(error)
    assert tokens(hw) == before


def test_a_tokenizer_without_settings_reads_text_all_the_same(folder):
    before = load(folder).tokenizer.encode("hello world")
    (folder / "tokenizer_config.json").write_text("{}")
    assert load(folder).tokenizer.encode("hello world") == before


def test_a_model_that_does_not_know_our_attention_is_refused(home):
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = make_model(home / "falcon")
    config = AutoConfig.for_model(
        "falcon", vocab_size=320, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    (folder / WEIGHTS).unlink()
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    with pytest.raises(ModelRefused) as error:
        load(folder)
    one_sentence(error)
