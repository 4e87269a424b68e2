"""Tiny models, made from configurations, with weights large enough that attention matters."""

from __future__ import annotations

import pytest
import torch

from headwater.engine.api import Headwater
from headwater.engine.loaded import LoadedModel
from tests.engine.steps import Lab, tiny_model
from tests.engine.tiny import make_model

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            not torch.cuda.is_available(), reason="needs a CUDA device, and this machine has none"
        ),
    ),
]


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # Tiny matrices gain nothing from threads, and waiting threads suffer on a busy machine.
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=DEVICES)
def device(request):
    """Every kind of device the engine has code for."""
    return torch.device(request.param)


@pytest.fixture(scope="session", params=["llama", "qwen2", "qwen3", "gpt_neox", "gpt2"])
def any_model(request, device):
    return tiny_model(request.param, device=device)


@pytest.fixture(scope="session")
def model(device):
    return tiny_model("llama", device=device)


@pytest.fixture
def lab(model):
    return Lab(model)


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """A tiny model from a folder, with a tokenizer and a chat template."""
    folder = make_model(tmp_path_factory.mktemp("tiny"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return LoadedModel.load(folder, dtype="float32", device="cpu")


@pytest.fixture
def engine(loaded):
    """Makes engines that count every page after every event, and closes them."""
    made = []

    def make(model=loaded, **options):
        options = {"kv_memory": "64 pages", "page": 4, "secret": bytes(32), "check": True} | options
        made.append(Headwater(model, **options))
        return made[-1]

    yield make
    for each in made:
        each.close("cancel")


@pytest.fixture
def hw(engine):
    return engine()


@pytest.fixture
def own(tmp_path, home):
    """A model that no other test shares."""
    return LoadedModel.load(make_model(tmp_path / "own", seed=1), "float32", "cpu")


@pytest.fixture
def other(tmp_path, home):
    """The folder of other weights, and the tokens an engine that began with them draws."""
    folder = make_model(tmp_path / "other", seed=2)
    return folder, LoadedModel.load(folder, "float32", "cpu")
