"""The package's front door."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headwater


def test_every_public_name_is_there():
    for name in headwater.__all__:
        assert getattr(headwater, name).__name__ == name


def test_names_are_listed_once_and_sorted():
    assert headwater.__all__ == sorted(headwater._HOMES)
    assert set(headwater.__all__) <= set(dir(headwater))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'Headwaters'"):
        _ = headwater.Headwaters


def test_errors_need_no_torch():
    code = "import sys, headwater; headwater.BadRequest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
