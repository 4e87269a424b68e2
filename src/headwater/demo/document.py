"""The text that the demonstration asks about: written for it, under the licence of this project."""

from __future__ import annotations

from importlib.resources import files


def document() -> str:
    return files(__package__).joinpath("document.txt").read_text("utf-8")
