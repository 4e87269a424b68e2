"""What makes no sense in the making of an engine costs one sentence, and no loading."""

from __future__ import annotations

import pytest
import torch

from headwater import BadSetting, Headwater, LoadedModel
from headwater.engine import memory
from tests.engine.tiny import make_model

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def nothing_loads(monkeypatch):
    def load(*_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("headwater.engine.loaded.resolve", load)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"secret": b"x"}, "The secret must have 32 bytes, but has 1"),
        ({"secret": "nowhere"}, "The secret nowhere cannot be read"),
        ({"device": "gpu"}, "device is 'gpu', but must be auto, cpu or cuda"),
        ({"device": "cuda:0"}, "device is 'cuda:0'"),
        ({"device": "cuda"}, "there is no CUDA device here"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"kv_memory": "900TiB"}, "kv_memory asks for 921,600.0 GiB of KV, but cpu has"),
        ({"kv_memory": 10**30}, "kv_memory asks for"),
        ({"kv_memory": "99999999999999999999 TiB"}, "kv_memory asks for"),
        ({"kv_memory": "9" * 5000}, "is no size"),
        ({"kv_memory": -1}, "holds nothing"),
        ({"page": 0}, "page must be 1 or more"),
        ({"cache": "off"}, "There is no cache 'off'"),
        ({"max_running": 9, "step_tokens": 8}, "step_tokens (8)"),
        ({"log": "no/such/folder/log"}, "The log no/such/folder/log cannot be made"),
        ({"log": "."}, "The log . cannot be made: File exists"),
    ],
    ids=str,
)
def test_a_bad_setting_costs_one_sentence_before_anything_is_loaded(nothing_loads, settings, said):
    with pytest.raises(BadSetting) as caught:
        Headwater("model", **settings)
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "--" not in str(caught.value), "no option of a command that may not have it"


def test_pages_that_no_machine_holds_are_refused_before_they_are_allocated(loaded):
    with pytest.raises(BadSetting, match="kv_memory asks for"):
        Headwater(loaded, kv_memory="9999999999999 pages")
    assert loaded.engines == 0


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    machine = memory.memory_of(torch.device("cpu"))
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMIT", limit)
    for written, there in (("1048576", 2**20), ("max", None), (str(2**62), None)):
        limit.write_text(written + "\n")
        found = memory.memory_of(torch.device("cpu"))
        assert found == there if there else found >= machine


def test_a_loaded_model_is_checked_before_it_is_fetched(nothing_loads):
    with pytest.raises(BadSetting, match="dtype"):
        LoadedModel.load(None, dtype="int8")


def test_a_secret_may_be_named_by_its_path(home, loaded):
    path = home / "fleet"
    path.write_text("ab" * 32)
    path.chmod(0o600)
    for given in (str(path), path, b"\xab" * 32):
        with Headwater(loaded, kv_memory="8 pages", secret=given) as hw:
            assert hw.healthy


def test_a_contract_that_misreads_the_shape_is_refused(home):
    """A configuration may leave to transformers what the contract does not know."""
    folder = make_model(home / "mistral", kind="mistral")
    config = (folder / "config.json").read_text()
    stated = '"num_key_value_heads": 2'
    assert stated in config
    loaded = LoadedModel.load(folder, "float32", "cpu")
    (folder / "config.json").write_text(config.replace(stated, '"num_key_value_heads": null'))
    with pytest.raises(Exception, match="states kv_heads in a way that is not known here"):
        Headwater(loaded, kv_memory="8 pages", secret=bytes(32))
