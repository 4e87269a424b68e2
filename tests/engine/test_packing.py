"""Packed weights: the same numbers, faster, and renewed with the weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headwater.engine.loaded import LoadedModel
from headwater.engine.packing import PackedLinear, Packing
from tests.engine.tiny import make_model


def a_net(dtype=torch.float32):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 32, bias=False))
    return net.to(dtype).eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 8, 33])
def test_packed_layers_give_the_plain_ones_results(dtype, rows):
    net = a_net(dtype)
    x = torch.randn(1, rows, 48, dtype=dtype)
    plain = net(x)
    packing = Packing(net, 1 << 30)
    assert len(packing) == 2
    assert all(layer.packed is not None for layer in net if isinstance(layer, PackedLinear))
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    assert torch.allclose(net(x), plain, atol=tolerance, rtol=tolerance)
    with packing.unpacked():
        assert torch.equal(net(x), plain)


def test_new_weights_count_after_they_are_packed_again():
    net = a_net()
    packing = Packing(net, 1 << 30)
    x = torch.randn(3, 48)
    net[0].weight.mul_(2)
    packing.renew()
    with packing.unpacked():
        plain = net(x)
    assert torch.allclose(net(x), plain, atol=1e-5)


def test_without_room_for_all_nothing_is_packed():
    net = a_net()
    needed = 4 * (48 * 96 + 96 * 32)
    assert len(Packing(net, needed - 1)) == 0
    assert type(net[0]) is nn.Linear
    assert len(Packing(net, needed)) == 2


def test_numbers_that_the_kernels_do_not_take_stay_plain():
    assert len(Packing(a_net(torch.float16), 1 << 30)) == 0


def test_a_loaded_model_is_packed_and_keeps_its_names(tmp_path):
    loaded = LoadedModel.load(make_model(tmp_path / "model"), dtype="float32", device="cpu")
    model = loaded.model
    linears = [module for module in model.net.modules() if isinstance(module, nn.Linear)]
    assert len(model.packing) == len(linears) > 0
    assert not any("packed" in name for name in model.net.state_dict())


def test_replaced_weights_are_what_is_computed_with(tmp_path):
    one, other = (
        LoadedModel.load(make_model(tmp_path / str(seed), seed=seed), dtype="float32", device="cpu")
        for seed in (0, 1)
    )
    ids = torch.tensor([[3, 4, 5, 6]])

    def logits(loaded):
        """By the packed weights, with the model's own attention."""
        net = loaded.model.net
        net.set_attn_implementation("eager")
        with torch.inference_mode():
            return net(ids).logits

    one.model.put_weights(one.model.fitting_weights(other.folder.path))
    assert torch.allclose(logits(one), logits(other), atol=1e-5)
