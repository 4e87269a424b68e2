"""`headwater chat`: a conversation with a running server, in the terminal."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from typing import Any

from headwater.cli.command import Command, positive
from headwater.cli.remote import Remote, add_server, key_of
from headwater.cli.replies import Piece, Usage
from headwater.cli.terminal import harmless
from headwater.errors import HeadwaterError

_HELP = """\
/reset  begin a new conversation
/why    say why no more of the last prompt was cached
/quit   end; so does the end of the input (Ctrl-D)
Ctrl-C  end an answer early"""


def _arguments(parser: ArgumentParser) -> None:
    add_server(parser)
    parser.add_argument("--system", metavar="TEXT", help="what the model is told beforehand")
    parser.add_argument(
        "--max-tokens",
        type=positive,
        metavar="N",
        help="most tokens of an answer (default: as many as fit)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        default=0.7,
        metavar="T",
        help="0 takes the likeliest token (default: %(default)s)",
    )


def _run(arguments: Namespace) -> int:
    with Remote(arguments.url, key_of(arguments)) as remote:
        chat = Conversation(remote, arguments)
        if sys.stdin is not None and sys.stdin.isatty():
            _talk(chat)
        else:
            _answer_lines(chat)
    return 0


def _talk(chat: Conversation) -> None:
    """With somebody at the keyboard: a mistake costs one turn, not the conversation."""
    with suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited and called back

    _aside(f"{chat.remote.url}; /help says what can be typed.")
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        try:
            if not _obey(chat, line):
                return
        except HeadwaterError as error:
            _aside(f"headwater: {error}")


def _answer_lines(chat: Conversation) -> None:
    """From a pipe or a file: a message a line. What goes wrong ends it, as in any command."""
    for line in sys.stdin or ():
        if not _obey(chat, line):
            return


def _obey(chat: Conversation, line: str) -> bool:
    """Do what a line asks; False when it ends the conversation."""
    word = line.strip()
    if word == "/quit":
        return False
    if word.startswith("/"):
        _COMMANDS.get(word, _unknown)(chat)
    elif word:
        chat.say(word)
    return True


class Conversation:
    """Turns with one server. Sends all of them each time: that they need not be computed again is
    what the server's cache is for."""

    def __init__(self, remote: Remote, arguments: Namespace) -> None:
        self.remote = remote
        self.why = "Nothing was asked yet."
        self._asked: dict[str, Any] = {
            "temperature": arguments.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if arguments.max_tokens is not None:
            self._asked["max_tokens"] = arguments.max_tokens
        self._system = arguments.system
        self._messages: list[dict[str, str]] = []

    def reset(self) -> None:
        self._messages = []

    def say(self, text: str) -> None:
        """One turn: print the answer as it comes, then what it took. A turn that fails is not
        kept; one that is interrupted is, as far as it came. Raises HeadwaterError."""
        asked = [*self._messages, {"role": "user", "content": text}]
        began = time.monotonic()
        turn = _Turn(began)
        try:
            with closing(self._pieces(asked)) as pieces:
                for piece in pieces:
                    turn.hear(piece)
        except KeyboardInterrupt:
            turn.is_whole = False
        except BaseException:
            turn.end_line()
            raise
        turn.end_line()
        if turn.text:
            self._messages = [*asked, {"role": "assistant", "content": turn.text}]
        self.why = turn.why or "The server did not say."
        _aside(turn.summary())

    def _pieces(self, messages: list[dict[str, str]]) -> Generator[Piece, None, None]:
        head = [] if self._system is None else [{"role": "system", "content": self._system}]
        body = self._asked | {"messages": head + messages}
        return self.remote.stream("/v1/chat/completions", body, Piece)


class _Turn:
    """An answer as it comes."""

    def __init__(self, began: float) -> None:
        self.text = ""
        self.why: str | None = None
        self.is_whole = True
        self._began = began
        self._first: float | None = None
        self._usage: Usage | None = None

    def hear(self, piece: Piece) -> None:
        if piece.text:
            if self._first is None:
                self._first = time.monotonic() - self._began
            self.text += piece.text
            print(harmless(piece.text), end="", flush=True)
        self._usage = piece.usage or self._usage
        if piece.headwater is not None:
            self.why = piece.headwater.cache[0].why.sentence

    def end_line(self) -> None:
        if self.text and not self.text.endswith("\n"):
            print(flush=True)

    def summary(self) -> str:
        """What the turn took."""
        first = "no text" if self._first is None else f"first token after {self._first:.2f} s"
        if self._usage is None or not self.is_whole:
            return f"[interrupted; {first}]"
        usage = self._usage
        return (
            f"[{usage.prompt_tokens} prompt tokens, {usage.cached} of them cached; {first}; "
            f"{usage.completion_tokens} generated]"
        )


def _reset(chat: Conversation) -> None:
    chat.reset()
    _aside("A new conversation.")


def _unknown(_: Conversation) -> None:
    _aside(_HELP)


_COMMANDS: dict[str, Callable[[Conversation], None]] = {
    "/reset": _reset,
    "/why": lambda chat: _aside(chat.why),
    "/help": _unknown,
}


def _aside(text: str) -> None:
    """Beside the answers, which alone go to the standard output."""
    dim = sys.stderr.isatty()
    print(f"\x1b[2m{text}\x1b[0m" if dim else text, file=sys.stderr, flush=True)


COMMAND = Command(
    name="chat",
    help="talk with a running server, and see after each turn what was cached",
    examples="""\
  # with the server that `headwater serve` started on this machine
  headwater chat

  # with another one; the key is read from HEADWATER_API_KEY
  headwater chat https://llm.example.org --system "Answer in one sentence."

  # messages from a file, one a line; answers go to the standard output, figures to the other
  headwater chat < questions.txt > answers.txt""",
    arguments=_arguments,
    run=_run,
)
