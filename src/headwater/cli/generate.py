"""`headwater generate`: one answer, as it is generated."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.cli.command import Command, add_dtype, add_json, add_model_option, positive
from headwater.cli.quiet import quiet_libraries
from headwater.cli.terminal import harmless, read_prompt, say

if TYPE_CHECKING:
    from headwater.engine.generation import Generation
    from headwater.engine.results import Result


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "prompt", metavar="PROMPT", help="what to answer; - reads it from the standard input"
    )
    add_model_option(parser)
    add_dtype(parser, "the engine's")
    parser.add_argument(
        "--kv-memory",
        default="1GiB",
        metavar="SIZE",
        help="room for KV: 512MB, 2GiB or '4096 pages' (default: %(default)s)",
    )
    parser.add_argument("--max-tokens", type=positive, default=256, help="(default: %(default)s)")
    parser.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="0 takes the likeliest token, 1 draws as the model would (default: %(default)s; the "
        "Python API's is 1.0)",
    )
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="P",
        help="draw among the likeliest tokens that together reach this probability "
        "(default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, help="draw the same answer again")
    parser.add_argument(
        "-n", type=positive, default=1, metavar="N", help="answers to draw (default: %(default)s)"
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this text; may be given several times",
    )
    parser.add_argument(
        "--raw", action="store_true", help="continue the prompt instead of answering it as a chat"
    )
    add_json(parser)


def _run(arguments: Namespace) -> int:
    asked = _asked(arguments)
    _check(arguments, asked)
    said = read_prompt(arguments.prompt)
    quiet_libraries()
    from headwater.engine.api import Headwater

    prompt = said if arguments.raw else [{"role": "user", "content": said}]
    with Headwater(arguments.model, dtype=arguments.dtype, kv_memory=arguments.kv_memory) as hw:
        _show(hw.submit(prompt, **asked), arguments)
    return 0


def _asked(arguments: Namespace) -> Any:
    """The engine's keywords."""
    return {
        "max_tokens": arguments.max_tokens,
        "temperature": arguments.temperature,
        "top_p": arguments.top_p,
        "seed": arguments.seed,
        "n": arguments.n,
        "stop": arguments.stop,
    }


def _check(arguments: Namespace, asked: Any) -> None:
    """Say what cannot work now, not after the seconds that torch and the model take."""
    from headwater.engine.asked import read_wanted
    from headwater.engine.options import read_options

    read_options({"kv_memory": arguments.kv_memory})
    read_wanted(asked).sampling()


def _show(generation: Generation, arguments: Namespace) -> None:
    """The answer as it comes; several, or JSON, when they are complete."""
    if arguments.json:
        say(msgspec.json.encode(generation.result()).decode())
        return
    if arguments.n > 1:
        for choice in generation.result().choices:
            say(f"--- {choice.index + 1} of {arguments.n}\n{harmless(choice.text)}")
    else:
        for piece in generation:
            print(harmless(piece.text), end="", flush=True)
        print()
    print(_summary(generation.result()), file=sys.stderr)


def _summary(result: Result) -> str:
    usage, timing = result.usage, result.timing
    return (
        f"{usage.prompt_tokens} prompt tokens, {usage.completion_tokens} generated, "
        f"first after {timing.first_token:.2f} s, all after {timing.total:.2f} s"
    )


COMMAND = Command(
    name="generate",
    help="answer one prompt, streaming the text",
    examples="""\
  headwater generate "Why is the sky blue?"

  # a prompt from a file, three answers to it
  headwater generate - -n 3 --temperature 0.8 < question.txt

  # continue a text, and show what the engine did as JSON
  headwater generate --raw "The capital of France is" --max-tokens 8 --stop . --json""",
    arguments=_arguments,
    run=_run,
)
