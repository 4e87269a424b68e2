from __future__ import annotations

import pytest

from headwater.engine.options import Options, read_options, recipe_of
from headwater.engine.units import parse_bytes
from headwater.errors import BadSetting
from tests.engine.steps import tiny_model


@pytest.mark.parametrize(
    ("size", "bytes_"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("1GiB", 2**30),
        ("1.5 gib", 3 * 2**29),
        ("512MB", 512_000_000),
        (" 2 KiB ", 2048),
    ],
)
def test_sizes(size, bytes_):
    assert parse_bytes(size) == bytes_


@pytest.mark.parametrize("size", ["", "much", "2G", "-1GB", "1e9", "GiB"])
def test_what_is_no_size_is_refused_with_an_example(size):
    with pytest.raises(BadSetting, match="as in 512MB or 2GiB"):
        parse_bytes(size)


FACTS = tiny_model("llama").facts


def test_kv_memory_in_pages_and_in_bytes():
    assert recipe_of(Options(kv_memory="17 pages"), FACTS, "e").pages == 17
    page = FACTS.kv_format.token_bytes * 16
    assert recipe_of(Options(kv_memory=18 * page), FACTS, "e").pages == 17, "one is the sink"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kv_memory": "1B"}, "does not hold a single page"),
        ({"page": 0}, "page must be 1 or more"),
        ({"policy": "best"}, "There is no policy 'best'; known are lru"),
        ({"cache": "off"}, "There is no cache 'off'; known are prefix, none"),
        ({"order": "sjf"}, "There is no order 'sjf'; known are fcfs, "),
        ({"context": 513}, "context must lie in [1, 512]"),
        ({"max_running": 0}, "max_running"),
        ({"max_running": 9, "step_tokens": 8}, "step_tokens (8) must hold a token of each"),
    ],
)
def test_options_that_make_no_sense_cost_one_sentence(options, said):
    with pytest.raises(BadSetting) as caught:
        recipe_of(read_options(options), FACTS, "e")
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")


def test_an_option_of_another_type_is_named():
    with pytest.raises(BadSetting, match="page: Expected `int`, got `str`"):
        read_options({"page": "16"})


def test_an_unknown_option_is_named():
    with pytest.raises(TypeError, match="'pages'"):
        read_options({"pages": 16})
