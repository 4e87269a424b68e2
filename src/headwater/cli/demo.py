"""`headwater demo`: watch a prefix being reused by a real model."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from headwater.cli.command import Command, add_model_option
from headwater.cli.quiet import quiet_libraries
from headwater.cli.terminal import drop_output
from headwater.errors import BadSetting

if TYPE_CHECKING:
    from headwater.demo.pair import Pair, Row

_KV_MEMORY = "512MiB"

DIFFERS = 1
"""Exit status when an answer is another with the cache than without, by more than a tie."""


def _arguments(parser: ArgumentParser) -> None:
    add_model_option(parser)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write what was measured as JSON")


def _run(arguments: Namespace) -> int:
    if arguments.json is not None:
        _require_writable(arguments.json)  # now, not after minutes
    quiet_libraries()
    from headwater.demo.acts import FULL, QUICK, play
    from headwater.demo.pair import Pair
    from headwater.demo.screen import all_agree, show_account, show_rows
    from headwater.engine.loaded import LoadedModel

    console = _Screen()
    console.print("Loading the model ...", style="dim")
    # Float32, because answers with and without the cache are compared token by token: they add the
    # same numbers in another order, which bfloat16 would now and then turn into another word.
    loaded = LoadedModel.load(arguments.model, dtype="float32")
    facts = loaded.model.facts
    console.print(
        f"[bold]{loaded.folder.name}[/bold] on {loaded.model.device.type}, float32, "
        f"{facts.kv_format.token_bytes / 1e3:.0f} kB of KV a token. Two engines over one set of "
        "weights: with the prefix cache, and without.\n"
    )
    with Pair(loaded, _KV_MEMORY) as pair:
        rows = show_rows(console, play(pair, QUICK if arguments.quick else FULL))
        show_account(console, rows, pair.cached.stats(), pair.uncached.stats())
        if arguments.json is not None:
            arguments.json.write_bytes(_json(loaded.folder.name, rows, pair))
    return 0 if all_agree(rows) else DIFFERS


class _Screen(Console):
    """Measures to the end, file and exit status included, when nobody reads on."""

    def on_broken_pipe(self) -> None:
        drop_output()


def _require_writable(path: Path) -> None:
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise BadSetting(f"{path} cannot be written: {error.strerror}.") from error


def _json(model: str, rows: list[Row], pair: Pair) -> bytes:
    measured = {
        "model": model,
        "rows": rows,
        "with_cache": pair.cached.stats(),
        "without": pair.uncached.stats(),
    }
    return msgspec.json.format(msgspec.json.encode(measured), indent=2) + b"\n"


COMMAND = Command(
    name="demo",
    help="watch a prefix being reused: a chat, readers of one document, several answers; exit "
    "status 1 when an answer differs with the cache by more than a tie",
    examples="""\
  # two to three minutes on two cores; the default model is fetched once (93 MB)
  headwater demo

  # half a minute, with the numbers in a file
  headwater demo --quick --json demo.json""",
    arguments=_arguments,
    run=_run,
)
