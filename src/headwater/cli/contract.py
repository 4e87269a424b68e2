"""`headwater contract`: show what KV of a model depends on, compare two models' contracts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import msgspec

from headwater.cli.command import Command, add_dtype, add_json, add_model, positive
from headwater.cli.terminal import say
from headwater.engine.contract_of import DEFAULT_PAGE, Computing, contract_of
from headwater.engine.sources.resolve import resolve
from headwater.errors import BadSetting, EngineMissing, ModelNotFound
from headwater.identity.compare import Comparison, Difference, compare_documents
from headwater.identity.contract import KVContract
from headwater.identity.document import dump

# 2 is a user's mistake, as everywhere: a script must not take a mistyped path for a verdict.
EXIT_STATUS = {"same": 0, "convertible": 1, "refused": 3}

_SAID = {
    "same": "KV of one can be used under the other as it is.",
    "convertible": "KV of one can be used under the other after: {}.",
    "refused": "KV of one must not be used under the other.",
}


def _add_computing(parser: ArgumentParser) -> None:
    """Let a command say how an engine is to compute and keep KV."""
    add_dtype(parser, "the engine's")
    parser.add_argument(
        "--page",
        type=positive,
        default=DEFAULT_PAGE,
        help="tokens a page of its KV (default: %(default)s)",
    )


def _computing(arguments: Namespace) -> Computing:
    number = arguments.dtype
    return Computing.uniform(_own_number() if number == "auto" else number, arguments.page)


def _own_number() -> str:
    """The number format an engine takes here. A base install has no engine to ask."""
    try:
        from headwater.engine.load import choose_device, choose_dtype
    except ModuleNotFoundError as error:
        if EngineMissing.because_of(error) is None:
            raise
        raise BadSetting("No engine is installed that would take a --dtype; name one.") from error
    return str(choose_dtype("auto", choose_device("auto"))).removeprefix("torch.")


def _show_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    _add_computing(parser)
    add_json(parser)


def _show(arguments: Namespace) -> int:
    contract = contract_of(resolve(arguments.model), _computing(arguments))
    if arguments.json:
        say(msgspec.json.encode(contract).decode())
    else:
        say(dump(contract).decode())
    return 0


def _compare_arguments(parser: ArgumentParser) -> None:
    kinds = "a contract in a .json file, a Hugging Face folder, a GGUF file, or a model's name"
    parser.add_argument("a", metavar="A", help=kinds)
    parser.add_argument("b", metavar="B", help="the same")
    parser.add_argument(
        "--keys",
        choices=("tokens", "text"),
        default="tokens",
        help="what prefixes are keyed by; tokenizer and template count only for text "
        "(default: tokens)",
    )
    _add_computing(parser)
    add_json(parser)


def _compare(arguments: Namespace) -> int:
    a, b = (_document(named, arguments) for named in (arguments.a, arguments.b))
    found = compare_documents(a, b, arguments.keys)
    say(msgspec.json.encode(found).decode() if arguments.json else _text(found))
    return EXIT_STATUS[found.verdict]


def _document(named: str, arguments: Namespace) -> bytes:
    """The contract a user named, as a JSON document."""
    path = Path(named).expanduser()
    if path.suffix != ".json":
        return dump(contract_of(resolve(named), _computing(arguments)))
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelNotFound(f"{named} cannot be read: {error.strerror}.") from error


def _text(found: Comparison) -> str:
    said = _SAID[found.verdict].format(", ".join(found.conversions))
    return "\n".join([f"{found.verdict}: {said}", *map(_lines, found.differences)])


def _lines(difference: Difference) -> str:
    why = "" if difference.why == "differs" else f" ({difference.why})"
    return (
        f"  {difference.field}{why}\n"
        f"    A  {difference.a or '(absent)'}\n"
        f"    B  {difference.b or '(absent)'}"
    )


def _schema(_: Namespace) -> int:
    schema = msgspec.json.encode(msgspec.json.schema(KVContract))
    say(msgspec.json.format(schema, indent=2).decode())
    return 0


COMMAND = Command(
    name="contract",
    help="show and compare the facts that decide whether KV can be reused",
    commands=(
        Command(
            name="show",
            help="print the contract of a model, as an engine here would run it, as JSON",
            examples="""\
  # keep it beside KV that is sent elsewhere
  headwater contract show path/to/folder > contract.json""",
            arguments=_show_arguments,
            run=_show,
        ),
        Command(
            name="compare",
            help="say whether KV of A may be used under B: exit status 0 same, 1 convertible, "
            "3 refused; 2 is a mistake in the command",
            examples="""\
  # two models: which facts differ?
  headwater contract compare path/to/base path/to/finetune

  # a stored contract against a model, in a script
  headwater contract compare contract.json path/to/folder && echo reusable""",
            arguments=_compare_arguments,
            run=_compare,
        ),
        Command(
            name="schema",
            help="print the JSON schema of contracts",
            run=_schema,
        ),
    ),
)
