"""`headwater model`: fetch a model, show where it lies."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import msgspec

from headwater.cli.command import Command, add_json, add_model
from headwater.cli.terminal import say, short_path
from headwater.engine.sources.resolve import ModelFolder, find, resolve


def _arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_json(parser)


def _fetch(arguments: Namespace) -> int:
    return _print(resolve(arguments.model), arguments)


def _show(arguments: Namespace) -> int:
    return _print(find(arguments.model), arguments)


def _print(found: ModelFolder, arguments: Namespace) -> int:
    size = sum(file.stat().st_size for file in found.path.glob("*.safetensors"))
    say(_json(found, size) if arguments.json else _text(found, size))
    return 0


def _json(found: ModelFolder, size: int) -> str:
    row = {
        "name": found.name,
        "path": str(found.path),
        "weight_digest": found.weight_digest,
        "weight_bytes": size,
    }
    return msgspec.json.encode(row).decode()


def _text(found: ModelFolder, size: int) -> str:
    return (
        f"{found.name}\n"
        f"  folder   {short_path(found.path)}\n"
        f"  weights  {size / 1e6:.0f} MB, SHA-256 {found.weight_digest}"
    )


COMMAND = Command(
    name="model",
    help="fetch a model and show where it lies",
    commands=(
        Command(
            name="fetch",
            help="make a model ready: download the default one, convert a GGUF file; then show it",
            examples="""\
  # the default model: 93 MB once, then nothing
  headwater model fetch

  # convert a GGUF file, so that the next start does not have to
  headwater model fetch path/to/model.gguf""",
            arguments=_arguments,
            run=_fetch,
        ),
        Command(
            name="show",
            help="show the folder of a model that is ready, and the digest of its weights",
            examples="""\
  headwater model show path/to/folder

  # the digest alone
  headwater model show --json | jq -r .weight_digest""",
            arguments=_arguments,
            run=_show,
        ),
    ),
)
