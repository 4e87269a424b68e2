"""Other weights in a running engine: old KV is never used with them."""

from __future__ import annotations

import threading

import pytest
import torch

from headwater import HeadwaterError, LoadedModel, ModelRefused
from tests.engine.tiny import make_model

PROMPT = list(range(2, 60))
GREEDY = {"max_tokens": 12, "ignore_eos": True, "temperature": 0.0}


@pytest.fixture
def own(tmp_path, home):
    """A model that no other test shares."""
    return LoadedModel.load(make_model(tmp_path / "own", seed=1), "float32", "cpu")


@pytest.fixture
def other(tmp_path, home):
    """The folder of other weights, and the tokens an engine that began with them draws."""
    folder = make_model(tmp_path / "other", seed=2)
    return folder, LoadedModel.load(folder, "float32", "cpu")


def tokens(hw, **asked):
    return hw.generate(PROMPT, **(GREEDY | asked)).choices[0].tokens


@pytest.mark.parametrize("mode", ["restart", "drain"])
@pytest.mark.parametrize("source", ["folder", "state dict"])
def test_new_weights_answer_as_if_the_engine_had_begun_with_them(engine, own, other, mode, source):
    folder, loaded = other
    hw, fresh = engine(own), engine(loaded)
    before = tokens(hw)
    given = folder if source == "folder" else loaded.model.net.state_dict()
    epoch = hw.replace_weights(given, mode)
    result = hw.generate(PROMPT, **GREEDY)
    assert result.usage.cached_tokens == 0
    assert result.choices[0].tokens == tokens(fresh) != before
    assert hw.stats().epoch == epoch
    assert hw.generate(PROMPT, **GREEDY).usage.cached_tokens == len(PROMPT) - 1


def test_a_folder_is_known_by_its_digest_and_a_state_dict_by_chance(engine, own, other):
    folder, loaded = other
    hw = engine(own)
    digest = loaded.folder.weight_digest
    assert hw.replace_weights(str(folder)) == digest
    state = loaded.model.net.state_dict()
    first, second = hw.replace_weights(state), hw.replace_weights(state)
    assert len({digest, first, second}) == 3
    assert len(bytes.fromhex(first)) == 16


def test_restart_goes_on_under_the_new_weights(engine, own, other):
    """What was drawn stays; the rest is what the new weights draw after it."""
    _, loaded = other
    hw, fresh = engine(own), engine(loaded)
    running = hw.submit(PROMPT, **(GREEDY | {"max_tokens": 80}))
    pieces = iter(running)
    drawn = [*next(pieces).tokens]
    hw.replace_weights(loaded.model.net.state_dict(), "restart")
    drawn += [token for piece in pieces for token in piece.tokens]
    assert len(drawn) == 80

    def is_from(at):
        """The new weights drew everything from here on."""
        rest = fresh.generate(PROMPT + drawn[:at], **(GREEDY | {"max_tokens": 80 - at}))
        return rest.choices[0].tokens == drawn[at:]

    assert any(is_from(at) for at in range(1, 70))


def test_drain_lets_running_requests_finish_under_the_old_weights(engine, own, other):
    folder, _ = other
    hw = engine(own)
    expected = tokens(hw, max_tokens=100)
    running = hw.submit(PROMPT, **(GREEDY | {"max_tokens": 100}))
    pieces = iter(running)
    next(pieces)
    changing = threading.Thread(target=hw.replace_weights, args=(folder, "drain"))
    changing.start()
    list(pieces)
    changing.join()
    assert running.result().choices[0].tokens == expected
    assert hw.generate(PROMPT, **GREEDY).usage.cached_tokens == 0


@pytest.mark.parametrize("source", ["state dict", "folder"])
def test_weights_that_do_not_fit_change_nothing(engine, own, tmp_path, source):
    hw = engine(own)
    before = tokens(hw)
    unfit = {"lm_head.weight": torch.zeros(1)} if source == "state dict" else tmp_path / "nothing"
    with pytest.raises(HeadwaterError):
        hw.replace_weights(unfit)
    result = hw.generate(PROMPT, **GREEDY)
    assert result.choices[0].tokens == before
    assert result.usage.cached_tokens == len(PROMPT) - 1, "and its KV is still right"


def test_weights_that_two_engines_share_stay(engine, own, other):
    one, _ = engine(own), engine(own)
    with pytest.raises(HeadwaterError, match="Another engine serves these weights"):
        one.replace_weights(other[0])


def test_the_folder_of_another_architecture_is_refused(engine, own, tmp_path):
    folder = make_model(tmp_path / "wide", seed=3)
    config = (folder / "config.json").read_text().replace("10000.0", "5000.0")
    (folder / "config.json").write_text(config)
    with pytest.raises(ModelRefused, match="another model"):
        engine(own).replace_weights(folder)


def test_a_change_fails_with_its_engine(engine, own, other, monkeypatch):
    hw = engine(own)
    monkeypatch.setattr(own.model, "replace_weights", lambda _: 1 / 0)
    with pytest.raises(HeadwaterError, match="ZeroDivisionError"):
        hw.replace_weights(other[0])
    assert not hw.healthy
