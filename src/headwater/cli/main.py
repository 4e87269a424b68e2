"""From the words a user typed to a command and an exit status."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from headwater.cli.command import Command
from headwater.cli.commands import COMMANDS
from headwater.errors import EngineMissing, HeadwaterError

USER_ERROR = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_EXAMPLES = """\
  # fetch the default model (93 MB, once) and show where it lies
  headwater model fetch

  # may KV computed with one model be reused with another?
  headwater contract compare path/to/model-a path/to/model-b

  # all that a command can do
  headwater contract compare --help"""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; its exit status. A user's mistake costs one sentence, no traceback."""
    try:
        arguments = _root().parse_args(words)
        return _run(arguments)
    except HeadwaterError as error:
        print(f"headwater: {error}", file=sys.stderr)
        return USER_ERROR
    except ModuleNotFoundError as error:
        missing = EngineMissing.because_of(error)
        if missing is None:
            raise
        print(f"headwater: {missing}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Python would complain again while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: Namespace) -> int:
    status: int = arguments.run(arguments)
    sys.stdout.flush()  # a broken pipe shows here, where it is handled
    return status


class _Parser(ArgumentParser):
    """A parser that answers a mistake with one sentence instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_ERROR, f"headwater: {message}; see {self.prog} --help.\n")


def _root() -> ArgumentParser:
    parser = _Parser(
        prog="headwater",
        description="A prefix cache for LLM inference: KV that was computed for a prompt prefix\n"
        "is kept, and reused when that is allowed, exact and faster than computing it again.",
        epilog=f"examples:\n{_EXAMPLES}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"headwater {version('headwater')}")
    _add(parser, COMMANDS)
    return parser


def _add(parser: ArgumentParser, commands: tuple[Command, ...]) -> None:
    """Add commands to a parser, and to each the commands below it."""
    group = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        below = group.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=f"examples:\n{command.examples}" if command.examples else None,
            formatter_class=RawDescriptionHelpFormatter,
        )
        command.arguments(below)
        if command.commands:
            _add(below, command.commands)
        else:
            below.set_defaults(run=command.run)
