"""What all tests share: none of them touches the user's own files."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A time limit for an example would measure the load of the machine, not the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home for the test: cache and state folders lie in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path
