"""Every family the README names, from a folder to an answer, through the front door."""

from __future__ import annotations

import pytest

from headwater import Headwater
from headwater.cli import main
from tests.engine.test_api import by_the_model_itself
from tests.engine.tiny import FAMILIES, make_model

PROMPT = list(range(2, 60))
GREEDY = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 6}


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_answers_as_its_own_model_does_cold_and_cached(kind, home):
    folder = make_model(home / kind, kind=kind)
    with Headwater(
        str(folder), kv_memory="64 pages", page=4, dtype="float32", device="cpu", check=True
    ) as hw:
        expected = by_the_model_itself(hw.loaded, PROMPT, 6)
        for cached in (0, len(PROMPT) - 1):
            result = hw.generate(PROMPT, **GREEDY)
            assert result.choices[0].tokens == expected
            assert result.usage.cached_tokens == cached


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_contract_of_a_family_can_be_shown(kind, home, capsys):
    assert main(["contract", "show", str(make_model(home / kind, kind=kind))]) == 0
    assert '"layers": 2' in capsys.readouterr().out
