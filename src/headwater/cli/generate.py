"""`headwater generate`: one answer, as it is generated."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

import msgspec

from headwater.cli.command import Command, add_json, add_model_option
from headwater.cli.quiet import quiet_libraries

if TYPE_CHECKING:
    from headwater.engine.results import Result


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="PROMPT", help="what to answer")
    add_model_option(parser)
    parser.add_argument("--max-tokens", type=int, default=256, help="(default: %(default)s)")
    parser.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="0 takes the likeliest token, 1 draws as the model would (default: %(default)s; the "
        "Python API's is 1.0)",
    )
    parser.add_argument("--seed", type=int, help="draw the same answer again")
    parser.add_argument(
        "--raw", action="store_true", help="continue the prompt instead of answering it as a chat"
    )
    add_json(parser)


def _run(arguments: Namespace) -> int:
    quiet_libraries()
    from headwater.engine.api import Headwater

    said = arguments.prompt
    prompt = said if arguments.raw else [{"role": "user", "content": said}]
    with Headwater(arguments.model) as hw:
        generation = hw.submit(
            prompt,
            max_tokens=arguments.max_tokens,
            temperature=arguments.temperature,
            seed=arguments.seed,
        )
        if arguments.json:
            print(msgspec.json.encode(generation.result()).decode())
            return 0
        for piece in generation:
            print(piece.text, end="", flush=True)
        print()
        print(_summary(generation.result()), file=sys.stderr)
    return 0


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

  # continue a text, and show what the engine did as JSON
  headwater generate --raw "The capital of France is" --max-tokens 8 --json""",
    arguments=_arguments,
    run=_run,
)
