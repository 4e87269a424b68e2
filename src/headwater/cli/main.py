"""From the words a user typed to a command and an exit status."""

from __future__ import annotations

import sys
from argparse import ZERO_OR_MORE, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn

from headwater.cli.command import Command
from headwater.cli.commands import COMMANDS
from headwater.cli.terminal import drop_output
from headwater.errors import EngineMissing, HeadwaterError

USER_ERROR = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_EXAMPLES = """\
  # a server with the default model (93 MB, fetched once), and a chat with it
  headwater serve
  headwater chat

  # is everything right with it?
  headwater doctor http://127.0.0.1:8000

  # all that a command can do
  headwater contract compare --help"""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; its exit status. A user's mistake costs one sentence, no traceback."""
    try:
        arguments = _root().parse_args(words)
        return _run(arguments)
    except HeadwaterError as error:
        return _complain(str(error))
    except ModuleNotFoundError as error:
        missing = EngineMissing.because_of(error)
        if missing is None:
            raise
        return _complain(str(missing))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # from what a command writes as it comes: the rest is not wanted
        drop_output()
        return 0
    except UnicodeEncodeError as error:
        return _complain(
            f"The output cannot be written in {error.encoding}; PYTHONIOENCODING=utf-8 lets it."
        )
    except OSError as error:
        drop_output()
        return _complain(f"{error.filename or 'The output cannot be written'}: {error.strerror}.")


def _run(arguments: Namespace) -> int:
    if sys.stdout is None:
        return _complain("There is no standard output to write to; /dev/null would do.")
    status: int = arguments.run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # what the command found out holds, read or not
        drop_output()
    return status


def _complain(sentence: str) -> int:
    if sys.stderr is not None:  # print would take the other
        with suppress(OSError):
            print(f"headwater: {sentence}", file=sys.stderr)
    return USER_ERROR


class _Parser(ArgumentParser):
    """A parser that answers a mistake with one sentence instead of a page of usage.

    Where any number of words may come, options may stand between them: `explain URL --raw PROMPT`.
    """

    _mixes = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        takes_many = any(each.nargs == ZERO_OR_MORE for each in self._get_positional_actions())
        if self._mixes or not takes_many:
            return super().parse_known_args(args, namespace)
        self._mixes = True  # the method below calls this one
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixes = False

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
    parser.set_defaults(run=partial(_help, parser))
    group = parser.add_subparsers(metavar="COMMAND")
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


def _help(parser: ArgumentParser, _: Namespace) -> int:
    """A command was left out: show which there are. A script that meant one must not go on."""
    parser.print_help()
    return USER_ERROR
