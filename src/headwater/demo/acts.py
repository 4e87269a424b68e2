"""The three acts: a conversation, readers of one document, several answers to one prompt."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headwater.demo.document import document
from headwater.demo.pair import Pair, Question, Row


class Length(msgspec.Struct, frozen=True):
    """How much of everything: turns of the chat, readers, answers to one prompt, tokens of each."""

    turns: int
    readers: int
    choices: int
    tokens: int


FULL = Length(turns=5, readers=4, choices=4, tokens=24)
QUICK = Length(turns=2, readers=2, choices=2, tokens=8)

TITLES = {
    1: "A conversation about a document: every turn sends all of it again",
    2: "Several readers of one document, all at once",
    3: "Several answers drawn from one prompt",
}

_TURNS = (
    "Who leads the station?",
    "How deep is the lake, and why do older maps say something else?",
    "When is the level of the lake read?",
    "What happens when the flow is above 20 cubic metres a second?",
    "What is the dog called?",
)

_READERS = (
    "Why was the station built?",
    "Which fish live in the lake?",
    "Where does the electricity come from?",
    "What is painted on the wall above the gauge?",
)


def play(pair: Pair, length: Length) -> Iterator[Row]:
    """All three, a row whenever one is complete."""
    yield from conversation(pair, length)
    yield from readers(pair, length)
    yield from samples(pair, length)


def conversation(pair: Pair, length: Length) -> Iterator[Row]:
    """One user, turn after turn. The answer of one turn is part of the next one's prompt."""
    messages = [_system()]
    for turn, text in enumerate(_TURNS[: length.turns], 1):
        messages.append({"role": "user", "content": text})
        question = Question(f"turn {turn}", list(messages), "alice")
        [row] = pair.ask(1, [question], max_tokens=length.tokens)
        messages.append({"role": "assistant", "content": row.answer})
        yield row


def readers(pair: Pair, length: Length) -> Iterator[Row]:
    """Readers of one sharing domain ask at once; then somebody of another domain asks the same.

    Nothing of the document is cached in their domain when they begin: one of them computes it, the
    others wait for that and share it.
    """
    domain = "the library"
    asked = [
        Question(f"reader {number}", _about(text), domain)
        for number, text in enumerate(_READERS[: length.readers], 1)
    ]
    yield from pair.ask(2, asked, max_tokens=length.tokens)
    stranger = Question("another domain", _about(_READERS[0]), "somebody else")
    yield from pair.ask(2, [stranger], max_tokens=length.tokens)


def samples(pair: Pair, length: Length) -> Iterator[Row]:
    """Several answers to a prompt that was read before.

    With the cache it is there for all of them; without, each of them computes it anew.
    """
    question = Question(f"n={length.choices}", _about("Describe the station."), "the library")
    yield from pair.ask(
        3, [question], n=length.choices, temperature=0.8, seed=7, max_tokens=length.tokens
    )


def _system() -> dict[str, str]:
    return {"role": "system", "content": f"Answer from this text, briefly.\n\n{document()}"}


def _about(question: str) -> list[dict[str, str]]:
    return [_system(), {"role": "user", "content": question}]
