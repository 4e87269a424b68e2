"""Other weights in a running engine: old KV is never used with them."""

from __future__ import annotations

import threading

import pytest
import torch

from headwater import BadSetting, HeadwaterError, ModelRefused
from headwater.identity.contract import KVContract
from tests.engine.tiny import make_model

PROMPT = list(range(2, 60))
GREEDY = {"max_tokens": 12, "ignore_eos": True, "temperature": 0.0}


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
    assert len(bytes.fromhex(first)) == len(bytes.fromhex(digest))


def test_replaced_and_begun_with_are_one_namespace(engine, own, other):
    """A replica that swapped and one that was started on the new weights may share their KV."""
    folder, loaded = other
    swapped, begun = engine(own), engine(loaded)
    swapped.replace_weights(folder)
    keys = [hw._engine._machine._state.namespace_of for hw in (swapped, begun)]
    assert swapped.generate(PROMPT, **GREEDY).usage.cached_tokens == 0
    assert keys[0].contract.meaning == keys[1].contract.meaning
    assert len({key(loaded.folder.weight_digest, "a", "b") for key in keys}) == 1
    swapped.replace_weights(loaded.model.net.state_dict())
    swapped.generate(PROMPT, **GREEDY)
    assert keys[0].contract.meaning.weight_digest != loaded.folder.weight_digest


def test_a_contract_is_hashed_once_for_its_weights(engine, own, other, monkeypatch):
    """Every arrival asks for a namespace, and hashing a contract takes longer than the rest."""
    hashed = []
    digest = KVContract.digest
    monkeypatch.setattr(KVContract, "digest", lambda self: hashed.append(self) or digest(self))
    hw = engine(own)
    for at in range(5):
        hw.generate(PROMPT, max_tokens=1, domain=str(at))
    assert len(hashed) == 1
    hw.replace_weights(other[0])
    for at in range(5):
        hw.generate(PROMPT, max_tokens=1, domain=str(at))
    assert len(hashed) == 2


def test_a_folder_without_safetensors_is_refused(engine, own, tmp_path):
    """Its weights would have no digest, and two such folders would meet in one namespace."""
    folder = make_model(tmp_path / "bin", seed=5)
    torch.save(own.model.net.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelRefused, match="holds no safetensors weights"):
        engine(own).replace_weights(folder)


def test_the_weights_that_were_digested_are_those_that_are_read(engine, own, other):
    folder, loaded = other
    torch.save(own.model.net.state_dict(), folder / "pytorch_model.bin")
    hw = engine(own)
    hw.replace_weights(folder)
    assert tokens(hw) == tokens(engine(loaded))


def test_an_unknown_mode_is_refused(engine, own, other):
    with pytest.raises(BadSetting, match="restart or drain"):
        engine(own).replace_weights(other[0], "later")


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
    monkeypatch.setattr(own.model, "put_weights", lambda _: 1 / 0)
    with pytest.raises(HeadwaterError, match="ZeroDivisionError"):
        hw.replace_weights(other[0])
    assert not hw.healthy
