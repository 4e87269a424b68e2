from __future__ import annotations

import pytest
import torch

from headwater.engine.kv import KVFormat, KVPool
from headwater.schedule.step import Copy

FORM = KVFormat(layers=30, kv_heads=3, head_size=64, dtype=torch.float32)


def test_bytes_of_a_token():
    assert FORM.token_bytes == 46_080
    assert KVFormat(30, 3, 64, torch.bfloat16).token_bytes == 23_040


def test_pages_that_fit_leave_room_for_the_sink():
    pages = FORM.pages_in(1 << 30, page_size=16)
    assert (pages + 1) * 16 * FORM.token_bytes <= 1 << 30 < (pages + 2) * 16 * FORM.token_bytes
    assert FORM.pages_in(1000, page_size=16) == 0


def test_the_sink_lies_behind_all_slots():
    pool = KVPool(KVFormat(2, 1, 4, torch.float32), pages=3, page_size=4)
    assert (pool.slots, pool.sink) == (12, 12)
    k, v = pool.layer(1)
    assert k.shape == v.shape == (16, 1, 4)


def test_copy_moves_all_layers_keys_and_values_and_nothing_else():
    pool = KVPool(KVFormat(2, 2, 4, torch.float32), pages=4, page_size=4)
    pool.tokens.copy_(torch.arange(pool.tokens.numel()).view_as(pool.tokens))
    before = pool.tokens.clone()
    pool.copy([Copy(4, 8, 3), Copy(4, 12, 1)])
    expected = before.clone()
    expected[:, :, 8:11] = before[:, :, 4:7]
    expected[:, :, 12] = before[:, :, 4]
    assert torch.equal(pool.tokens, expected)


@pytest.mark.parametrize(("pages", "size"), [(0, 16), (4, 0)])
def test_a_pool_of_nothing_is_refused(pages, size):
    with pytest.raises(ValueError, match="holds nothing"):
        KVPool(FORM, pages, size)
