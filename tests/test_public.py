"""The package's front door."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import headwater


def test_every_public_name_is_there():
    for name in headwater.__all__:
        assert getattr(headwater, name).__name__ == name


def test_names_are_listed_once_and_sorted():
    assert headwater.__all__ == sorted(set(headwater.__all__))
    assert set(headwater.__all__) <= set(dir(headwater))


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(headwater.__file__).read_text("utf-8"))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname: f"headwater.{headwater._HOMES[alias.name]}" == each.module
        for each in checked.body
        for alias in each.names
    }
    assert seen == dict.fromkeys(headwater.__all__, True)


def test_what_is_public_is_taken_or_given_by_a_public_call():
    """Structs that only check keywords are not: nobody could hand one in."""
    assert not {"Options", "Wanted", "SamplingParams"} & set(headwater.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'Headwaters'"):
        _ = headwater.Headwaters


def test_errors_need_no_torch():
    code = "import sys, headwater; headwater.BadRequest; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
