"""Running servers for the commands that talk to one."""

from __future__ import annotations

import pytest
import torch

from headwater.engine.loaded import LoadedModel
from tests.server import models
from tests.server.live import TENANTS, Live


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    # Tiny matrices gain nothing from threads, and waiting threads suffer on a busy machine.
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    """The key of whoever runs the tests is no part of them."""
    monkeypatch.delenv("HEADWATER_API_KEY", raising=False)


SPELLED_AS_READ = "🙂é中д."
"""An answer that becomes the same tokens when it is sent back: no word of it is a token."""


@pytest.fixture(scope="session")
def make_loaded(tmp_path_factory):
    """Loads models that answer every chat with one saying, with a template of their own."""
    base = tmp_path_factory.mktemp("models")

    def make(name, saying=models.SAYING, template=None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
            patch.setattr(models, "SAYING", saying)
            folder = models.make_parrot(base / name)
            if template is not None:
                (folder / "chat_template.jinja").write_text(template)
            return LoadedModel.load(folder, dtype="float32", device="cpu")

    return make


@pytest.fixture(scope="session")
def loaded(make_loaded):
    return make_loaded("parrot", SPELLED_AS_READ)


@pytest.fixture(scope="session")
def _open(loaded):
    live = Live(loaded)
    yield live
    live.close()


@pytest.fixture
def server(_open):
    """A server anyone may ask, which has forgotten everything."""
    _open.forget()
    return _open


@pytest.fixture(scope="session")
def keyed(loaded):
    """A server with two tenants and an admin."""
    live = Live(loaded, tenants=TENANTS)
    yield live
    live.close()


@pytest.fixture
def live(loaded):
    """Makes servers that a test has to itself."""
    made = []

    def make(model=loaded, **settings):
        made.append(Live(model, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
