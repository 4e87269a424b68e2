"""Run benchmarks. Usage: python -m bench NAME [--json FILE]"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from rich.console import Console

from bench.options import Options
from bench.report import Row, show, to_json
from bench.targets import TARGETS

SUBJECTS = ("index", "schedule", "serving", "server")
"""In the order of `all`: the quick ones first, so that a broken set-up shows early."""


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    log = Console(stderr=True)
    options = Options(
        model=args.model,
        gguf=args.gguf,
        rounds=args.rounds,
        threads=args.threads,
        peers=None if args.peers is None else frozenset(args.peers.split(",")),
        say=lambda text: log.print(f"[dim]{text}[/]"),
    )
    rows: list[Row] = []
    for name in SUBJECTS if args.name == "all" else (args.name,):
        # Imported when asked for: the pure subjects run where there is no torch.
        measured = importlib.import_module(f"bench.{name}").run(options)
        rows += [*measured, *_unmeasured(name, measured)]
        if args.json is not None:
            args.json.write_bytes(to_json(rows, args.threads))
    show(rows, Console())
    return 0


def _unmeasured(subject: str, rows: list[Row]) -> list[Row]:
    """A target whose module returned no row for it is reported, not forgotten."""
    seen = {row.id for row in rows}
    return [
        Row(name, None, target.unit, "", "its module did not measure it")
        for name, target in TARGETS.items()
        if name.partition(".")[0] == subject and name not in seen
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Headwater.")
    parser.add_argument(
        "name", choices=(*SUBJECTS, "all"), metavar="NAME", help="what to measure: %(choices)s"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write rows and machine here"
    )
    parser.add_argument(
        "--model", type=Path, metavar="FOLDER", help="another model than the default one"
    )
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="the same model for llama.cpp")
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="repetitions (default %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=2, metavar="N", help="of every engine (default %(default)s)"
    )
    parser.add_argument(
        "--peers", metavar="NAME,...", help="measure serving beside these only (default: all)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
