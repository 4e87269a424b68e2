"""A contract from a configuration: what counts, what does not, what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec.structs import replace

from headwater.engine.contract_of import Computing, contract_of
from headwater.engine.sources.resolve import resolve
from headwater.errors import ModelRefused
from headwater.identity.compare import compare
from tests.engine.folders import make_folder


@pytest.fixture
def contract(home):
    """The contract of the small folder with some entries of its configuration changed."""
    return lambda **changes: contract_of(resolve(make_folder(home / "model", **changes)))


def differing(a, b):
    return [difference.field for difference in compare(a, b).differences]


def test_the_shape_is_read(contract):
    meaning = contract().meaning
    assert (meaning.layers, meaning.kv_heads, meaning.head_size) == (2, 2, 16)
    assert (meaning.architecture, meaning.vocabulary) == ("LlamaForCausalLM", 300)
    assert meaning.epoch == meaning.weight_digest


OLD_NAMES = {"n_head": 4, "n_layer": 2, "n_embd": 64, "n_positions": 512, "n_ctx": 512}
NEW_NAMES = ["num_attention_heads", "num_hidden_layers", "hidden_size", "max_position_embeddings"]


def test_both_spellings_of_the_shape_are_one_contract(contract):
    assert contract() == contract(**dict.fromkeys(NEW_NAMES), **OLD_NAMES)


def test_multi_query_means_one_kv_head_unless_they_are_stated(contract):
    assert contract(num_key_value_heads=None, multi_query=True).meaning.kv_heads == 1
    assert contract(multi_query=True).meaning.kv_heads == 2


def test_learned_positions_are_no_rope(contract):
    assert contract(rope_theta=None).meaning.position_encoding == {}


def test_absent_entries_have_the_usual_meaning(contract):
    assert contract(num_key_value_heads=None).meaning.kv_heads == 4
    assert contract(head_dim=32).meaning.head_size == 32


@pytest.mark.parametrize(
    ("entry", "value", "field"),
    [
        ("rms_norm_eps", 1e-06, "meaning.settings.rms_norm_eps"),
        ("hidden_act", "gelu", "meaning.settings.hidden_act"),
        ("an_entry_of_the_future", 1, "meaning.settings.an_entry_of_the_future"),
        ("sliding_window", 128, "meaning.attention.sliding_window"),
        ("attn_logit_softcapping", 50.0, "meaning.attention.attn_logit_softcapping"),
        ("rope_theta", 500000.0, "meaning.position_encoding.rope_theta"),
    ],
)
def test_an_entry_that_counts_refuses_and_is_named(contract, entry, value, field):
    before, after = contract(), contract(**{entry: value})
    assert compare(before, after).verdict == "refused"
    assert differing(before, after) == [field]


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("transformers_version", "9.9"),
        ("use_cache", False),
        ("dtype", "bfloat16"),
        ("eos_token_id", 7),
        ("max_position_embeddings", 1024),
    ],
)
def test_a_harmless_entry_does_not_count(contract, entry, value):
    assert contract() == contract(**{entry: value})


def test_both_spellings_of_rope_are_one_fact(contract):
    new = {"rope_type": "default", "rope_theta": 10000}
    assert contract() == contract(rope_theta=None, rope_parameters=new)
    old = contract(rope_scaling={"type": "linear", "factor": 2.0})
    new = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2}
    assert old == contract(rope_theta=None, rope_parameters=new)


def test_the_newer_name_of_the_rope_type_wins(contract):
    """As in transformers, where the two compute different logits."""
    both = contract(rope_scaling={"type": "default", "rope_type": "linear", "factor": 4})
    assert both == contract(rope_scaling={"rope_type": "linear", "factor": 4})
    assert both != contract(rope_scaling={"type": "default", "factor": 4})
    nested = contract(rope_scaling={"full": {"type": "default", "rope_type": "linear"}})
    assert nested == contract(rope_scaling={"full": {"rope_type": "linear"}})
    assert nested != contract(rope_scaling={"full": {"type": "default"}})


def test_of_two_dictionaries_of_rope_the_older_one_counts(contract):
    """As in transformers: the other is not read at all."""
    linear = {"rope_type": "linear", "factor": 2.0}
    both = contract(rope_scaling=linear, rope_parameters=linear | {"factor": 4.0})
    assert both == contract(rope_scaling=linear)


@pytest.mark.parametrize("name", ["rope_theta", "partial_rotary_factor"])
@pytest.mark.parametrize("zero", [0, 0.0, False])
def test_a_zero_in_rope_is_not_absence(contract, name, zero):
    assert contract(**{name: zero}) != contract(**{name: None})


def test_rope_that_is_no_dictionary_is_refused(contract):
    with pytest.raises(ModelRefused, match="rope_scaling"):
        contract(rope_scaling=5)


def test_a_rope_that_stretches_depends_on_the_window(contract):
    scaled = {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    before, after = contract(**scaled), contract(**scaled, max_position_embeddings=1024)
    assert differing(before, after) == ["meaning.position_encoding.max_position_embeddings"]


def test_how_the_engine_computes_counts(home):
    folder = resolve(make_folder(home / "model"))
    half = contract_of(folder, replace(Computing.uniform(), kv_dtype="bfloat16"))
    assert differing(contract_of(folder), half) == ["meaning.kv_dtype"]


def test_tokenizer_and_template_are_carried_for_those_who_key_by_text(contract, home):
    before = contract()
    (home / "model" / "tokenizer.json").write_text('{"a": 1}')
    (home / "model" / "chat_template.jinja").write_text("{{ messages }}")
    found = compare(before, contract_of(resolve(home / "model")), keys="text")
    assert found.verdict == "refused"
    assert [d.field for d in found.differences] == ["text.tokenizer_digest", "text.template_digest"]


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("num_hidden_layers", None),
        ("num_hidden_layers", "2"),
        ("vocab_size", 0),
        ("num_attention_heads", None),
        ("architectures", None),
        ("architectures", []),
    ],
)
def test_a_configuration_without_a_shape_is_refused(contract, entry, value):
    with pytest.raises(ModelRefused, match=r"configuration"):
        contract(**{entry: value})


def test_a_configuration_that_is_no_json_is_refused(home):
    folder = make_folder(home / "model")
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelRefused, match="cannot be read as JSON"):
        contract_of(resolve(folder))


def test_no_torch_is_needed():
    code = "import sys, headwater.engine.contract_of; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
