"""The pages name everything a user can type."""

from __future__ import annotations

import re
import subprocess
import sys
from ast import literal_eval
from itertools import takewhile
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import headwater
from headwater.cli.command import Command
from headwater.cli.commands import COMMANDS
from headwater.engine.asked import Wanted
from headwater.engine.options import Options
from headwater.engine.results import Result
from headwater.observe.explain import Why

ROOT = Path(__file__).parent.parent
API = (ROOT / "docs" / "api.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def leaves(commands: tuple[Command, ...], path=("headwater",)):
    for command in commands:
        yield from leaves(command.commands, (*path, command.name))
        if not command.commands:
            yield " ".join((*path, command.name))


def block_after(page, line):
    """The lines of the first code block behind a line."""
    return page.partition(line)[2].split("```")[1].splitlines()


def test_the_readme_lists_exactly_the_commands():
    shown = [
        " ".join(takewhile(is_word, line.split())) for line in block_after(README, "command line:")
    ]
    assert sorted(filter(None, shown)) == sorted(leaves(COMMANDS))


def is_word(word):
    """A command's, not an argument and not what is said about it."""
    return word in {name for command in leaves(COMMANDS) for name in command.split()}


def table(heading, column):
    """First cells to the cells of another column, of the table under a row of headings."""
    rows = API.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {row[0].strip("` "): row[column] for row in cells}


@pytest.mark.parametrize(
    ("struct", "heading"),
    [
        (Options, "| option | default | what it is |"),
        (Wanted, "| keyword | default | what it is |"),
    ],
)
def test_the_api_page_lists_exactly_the_options_and_keywords_with_their_defaults(struct, heading):
    written = table(heading, 1)
    assert list(written) == list(struct.__struct_fields__)
    for name, default in zip(struct.__struct_fields__, struct.__struct_defaults__, strict=True):
        said = written[name].strip("`")
        if said in ("none", "the model's"):  # in words
            assert default in ((), None)
        else:
            assert literal_eval(said) == (default.factory() if is_made(default) else default)


def is_made(default):
    """msgspec makes defaults that could change anew each time."""
    return hasattr(default, "factory")


def test_the_api_page_lists_exactly_the_errors():
    errors = {name for name in headwater.__all__ if issubclass_of_error(getattr(headwater, name))}
    assert set(table("| error | when |", 1)) == errors - {"HeadwaterError"}


def issubclass_of_error(thing):
    return isinstance(thing, type) and issubclass(thing, headwater.HeadwaterError)


def test_the_api_page_lists_exactly_the_reasons():
    kinds = {
        kind
        for union in get_args(get_type_hints(Why)["kind"])
        for kind in get_args(union) or [union]
    }
    assert set(table("| `.why.kind` |", 1)) == kinds


def test_the_api_page_lists_exactly_the_fields_of_a_result():
    fields = {*Result.__struct_fields__, "text"}
    assert {name.lstrip(".") for name in table("`Result`:\n\n| field | what it is |", 1)} == fields


@pytest.mark.parametrize("name", headwater.__all__)
def test_every_public_name_is_in_the_api_page(name):
    assert re.search(rf"`{name}\b", API)


def test_the_pages_name_no_name_that_is_not_public():
    """What stands in code as a name of its own is something a reader would try to import."""
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", API))
    assert named - {"TypeError", "None", "True", "False"} <= set(headwater.__all__)


def test_every_module_has_its_line_in_the_architecture():
    check = [sys.executable, "tools/structure.py", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
