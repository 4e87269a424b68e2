"""What a command is to the command line, and the arguments that several commands take."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A word after `headwater`, or after another command.

    help: one line for the list of commands.
    examples: command lines that can be pasted, each under a comment that says what it shows.
    arguments: adds the command's arguments to its parser.
    run: does the work and returns the exit status: 0, or what `help` promises. It imports what is
        slow to import (torch, above all) itself, so that --help answers at once.
    commands: the words that may follow, for a command that only groups others.
    """

    name: str
    help: str
    examples: str = ""
    arguments: Callable[[ArgumentParser], None] = lambda _: None
    run: Callable[[Namespace], int] | None = None
    commands: tuple[Command, ...] = ()


def add_json(parser: ArgumentParser) -> None:
    """Let a command print JSON for machines."""
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")


MODEL = (
    "a Hugging Face folder, a GGUF file, or the name of the default model, "
    "smollm2-135m-instruct, which is also what is used when nothing is given"
)


def add_model(parser: ArgumentParser) -> None:
    """Let a command take a model as `headwater.engine.sources.resolve.resolve` understands it."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help=MODEL)


def add_model_option(parser: ArgumentParser) -> None:
    """The same as an option, for a command that is about something else."""
    parser.add_argument("--model", metavar="MODEL", help=MODEL)


def add_dtype(parser: ArgumentParser, whose: str) -> None:
    """Let a command say in which number format an engine is to compute."""
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help=f"{whose} number format (default: auto, what an engine on this machine takes)",
    )


def positive(word: str) -> int:
    """A whole number of one or more, as an argument's type."""
    number = int(word)
    if number < 1:
        raise ValueError
    return number


positive.__name__ = "number"  # what argparse calls it in its complaint
