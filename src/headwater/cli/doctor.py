"""`headwater doctor`: is everything right with a running server?"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter

import msgspec

from headwater.cli.command import Command, add_json
from headwater.cli.remote import Remote, add_server, key_of
from headwater.cli.terminal import harmless, say

SICK = 1
"""Exit status when a check failed."""


def _arguments(parser: ArgumentParser) -> None:
    add_server(parser)
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="a server that says nothing for so long has failed (default: %(default)s)",
    )
    add_json(parser)


def _seconds(word: str) -> float:
    number = float(word)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


_seconds.__name__ = "number of seconds"  # what argparse calls it in its complaint


def _run(arguments: Namespace) -> int:
    from headwater.cli.checks import Finding, examine

    findings: list[Finding] = []
    with Remote(arguments.url, key_of(arguments), arguments.timeout) as remote:
        for finding in examine(remote):
            findings.append(finding)
            if not arguments.json:
                say(harmless(_lines(finding.verdict, finding.check, finding.said, finding.todo)))
    is_well = all(finding.verdict != "failed" for finding in findings)
    if arguments.json:
        told = {"url": remote.url, "ok": is_well, "checks": findings}
        say(msgspec.json.encode(told).decode())
    else:
        counts = Counter(finding.verdict for finding in findings)
        say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 0 if is_well else SICK


def _lines(verdict: str, check: str, said: str, todo: str) -> str:
    line = f"{verdict:<8} {check:<17} {said}"
    return f"{line}\n{'':<26} {todo}" if todo else line


COMMAND = Command(
    name="doctor",
    help="check a running server: key, model, cache, template, metrics, clock, streaming; exit "
    "status 1 when a check failed",
    examples="""\
  # the server on this machine
  headwater doctor

  # another one, in a script; the key is read from HEADWATER_API_KEY
  headwater doctor https://llm.example.org --json | jq '.checks[] | select(.verdict != "ok")'""",
    arguments=_arguments,
    run=_run,
)
