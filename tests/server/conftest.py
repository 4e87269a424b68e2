"""Real servers with tiny models: some for the session, others for a test that spoils its own."""

from __future__ import annotations

import pytest
import torch

from headwater.engine.loaded import LoadedModel
from tests.server.live import TENANTS, Live
from tests.server.models import make_babbler, make_parrot


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # Tiny matrices gain nothing from threads, and waiting threads suffer on a busy machine.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Model folders by name: `babbler` has random weights, `parrot` says what it is told to."""
    base = tmp_path_factory.mktemp("models")
    return {
        "babbler": make_babbler(base / "babbler"),
        "parrot": make_parrot(base / "parrot"),
    }


@pytest.fixture(scope="session")
def models(folders, tmp_path_factory):
    """The same, loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return {
            name: LoadedModel.load(folder, dtype="float32", device="cpu")
            for name, folder in folders.items()
        }


@pytest.fixture(scope="session")
def babbler(models):
    """A server anyone may ask, with random weights."""
    live = Live(models["babbler"])
    yield live
    live.close()


@pytest.fixture(scope="session")
def parrot(models):
    """A server anyone may ask, whose answers are known."""
    live = Live(models["parrot"])
    yield live
    live.close()


@pytest.fixture(scope="session")
def _keyed(models):
    live = Live(models["parrot"], tenants=TENANTS)
    yield live
    live.close()


@pytest.fixture
def keyed(_keyed):
    """A server with two tenants and an admin, which has forgotten everything."""
    _keyed.forget()
    return _keyed


@pytest.fixture
def live(models):
    """Makes servers that a test has to itself, of a model by its name or of one of its own."""
    made = []

    def make(model="parrot", **settings):
        loaded = models[model] if isinstance(model, str) else model
        made.append(Live(loaded, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
