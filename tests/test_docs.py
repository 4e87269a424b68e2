"""The pages name everything a user can type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater.cli.command import Command
from headwater.cli.commands import COMMANDS
from headwater.engine.asked import Wanted
from headwater.engine.options import Options

ROOT = Path(__file__).parent.parent
API = (ROOT / "docs" / "api.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def leaves(commands: tuple[Command, ...], path=("headwater",)):
    for command in commands:
        yield from leaves(command.commands, (*path, command.name))
        if not command.commands:
            yield " ".join((*path, command.name))


@pytest.mark.parametrize("command", list(leaves(COMMANDS)))
def test_every_command_is_in_the_readme(command):
    assert command in README


@pytest.mark.parametrize("field", [*Options.__struct_fields__, *Wanted.__struct_fields__])
def test_every_option_and_keyword_is_in_the_api_page(field):
    assert f"`{field}`" in API


@pytest.mark.parametrize("name", headwater.__all__)
def test_every_public_name_is_in_the_api_page(name):
    assert f"`{name}" in API


def test_every_module_has_its_line_in_the_architecture():
    check = [sys.executable, "tools/structure.py", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
