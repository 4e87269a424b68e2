"""`headwater bench`: the benchmarks of the repository this package was installed from."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path

import headwater
from headwater.cli.command import Command
from headwater.errors import BadSetting


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs=REMAINDER, metavar="NAME ...", help="what `python -m bench` takes"
    )


def _run(arguments: Namespace) -> int:
    repository = Path(headwater.__file__).parents[2]
    if not (repository / "bench" / "__main__.py").is_file():
        raise BadSetting(
            "Benchmarks come with the repository, not with the package; clone it, and install it "
            "with pip install -e '.[server,dev]'."
        )
    paths = [str(repository), *filter(None, [os.environ.get("PYTHONPATH")])]
    words = arguments.words or ["--help"]
    done = subprocess.run(  # noqa: S603 - our own module; the words are its user's
        [sys.executable, "-P", "-m", "bench", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    return done.returncode


COMMAND = Command(
    name="bench",
    help="measure this machine: the benchmarks of the repository",
    examples="""\
  # what can be measured
  headwater bench

  # the index alone, as JSON too
  headwater bench index --json index.json""",
    arguments=_arguments,
    run=_run,
)
