"""`headwater explain`: what a running server would reuse of a prompt, and why no more."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

import msgspec

from headwater.cli.command import Command, add_json
from headwater.cli.remote import URL, Remote, add_key, key_of, looks_like_url
from headwater.cli.replies import Explained, Why
from headwater.cli.terminal import harmless, read_prompt, read_text, say
from headwater.errors import BadSetting

_TODO = {
    "never_seen": "It is cached when it has been asked once; POST /v1/cache/prewarm does that "
    "beforehand.",
    "diverged": "Put first what stays the same, and what changes (times, names, retrieved texts) "
    "last.",
    "evicted": "More --kv-memory would keep it longer; POST /v1/cache/pin keeps it for a time.",
    "unfinished": "A request that came now would wait for that one, and use what it computes.",
}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[URL] PROMPT",
        help=f"the server (default: {URL}) and what would be asked, as a user's message; "
        "- reads it from the standard input",
    )
    parser.add_argument(
        "--messages",
        metavar="FILE",
        help="instead of a prompt: JSON with a list of messages, or with a whole chat request, of "
        "which messages, tools and chat_template_kwargs are taken; - is the standard input",
    )
    parser.add_argument("--raw", action="store_true", help="the prompt as it is, without template")
    parser.add_argument("--salt", metavar="TEXT", help="the salt under which it would be asked")
    add_key(parser)
    add_json(parser)


def _run(arguments: Namespace) -> int:
    url, body = _asked(arguments)
    if arguments.salt is not None:
        body["salt"] = arguments.salt
    with Remote(url, key_of(arguments)) as remote:
        found = remote.post("/v1/cache/explain", body, Explained)
    say(msgspec.json.encode(found).decode() if arguments.json else harmless(_text(found)))
    return 0


def _asked(arguments: Namespace) -> tuple[str, dict[str, Any]]:
    """The server, and the prompt as it takes it. Raises BadSetting."""
    words = list(arguments.words)
    if arguments.messages is not None:
        if len(words) > 1 or arguments.raw:
            raise BadSetting("Give either a prompt or --messages; --raw goes with a prompt.")
        return words[0] if words else URL, _messages(arguments.messages)
    if not words or (len(words) == 1 and looks_like_url(words[0])):
        raise BadSetting("Give a prompt, behind the URL where there is one, or --messages FILE.")
    if len(words) > 2:
        raise BadSetting("A prompt of several words stands in quotes.")
    said = read_prompt(words[-1])
    url = words[0] if len(words) == 2 else URL
    return url, {"prompt": said} if arguments.raw else {
        "messages": [{"role": "user", "content": said}]
    }


def _messages(file: str) -> dict[str, Any]:
    """What a file holds of a chat request. Raises BadSetting."""
    try:
        given = msgspec.json.decode(read_text(file))
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadSetting(f"{file} is no JSON: {error}.") from error
    body = {"messages": given} if isinstance(given, list) else given
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise BadSetting(f"{file} holds neither a list of messages nor an object with one.")
    taken = ("messages", "tools", "chat_template_kwargs")
    return {name: body[name] for name in taken if body.get(name) is not None}


def _text(found: Explained) -> str:
    tokens, cached = found.prompt_tokens, found.cached_tokens
    lines = [
        f"{cached} of {tokens} prompt tokens are cached ({100 * cached // max(tokens, 1)} %); "
        f"{tokens - cached} would be computed."
    ]
    if found.why.kind == "unfinished":
        lines.append(f"Another request is computing up to token {found.promised_tokens} now.")
    return "\n".join([*lines, *_reason(found.why)])


def _reason(why: Why) -> list[str]:
    lines = [why.sentence]
    if why.kind in {
        "evicted",
        "unfinished",
        "new_suffix",
    }:  # the others name the place, or have none
        lines.append(f"That is after {why.before!r}, before {why.after!r}.")
    if why.kind in _TODO:
        lines.append(_TODO[why.kind])
    return lines


COMMAND = Command(
    name="explain",
    help="say what a running server would reuse of a prompt, and why no more, without running it",
    examples="""\
  headwater explain "Why is the sky blue?"

  # a conversation on another server; the key is read from HEADWATER_API_KEY
  headwater explain https://llm.example.org --messages conversation.json

  # a text without the chat template, as JSON
  headwater explain --raw - --json < document.txt""",
    arguments=_arguments,
    run=_run,
)
