"""Tiny models, made from configurations, with weights large enough that attention matters."""

from __future__ import annotations

import pytest
import torch

from tests.engine.steps import Lab, tiny_model


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # Tiny matrices gain nothing from threads, and waiting threads suffer on a busy machine.
    torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["llama", "qwen2", "qwen3", "gpt_neox", "gpt2"])
def any_model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="session")
def model():
    return tiny_model("llama")


@pytest.fixture
def lab(model):
    return Lab(model)
