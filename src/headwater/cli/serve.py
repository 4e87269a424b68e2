"""`headwater serve`: an OpenAI-compatible server."""

from __future__ import annotations

import logging
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.cli.command import MODEL, Command
from headwater.cli.quiet import quiet_libraries
from headwater.cli.terminal import short_path, size

if TYPE_CHECKING:
    from headwater.engine.api import Headwater
    from headwater.server.config import ServerConfig


class Setting(NamedTuple):
    """A setting that the configuration may give as well: as a flag it has no default of its own.

    metavar: None for one that is on or off.
    """

    flag: str
    metavar: str | None
    text: str
    kind: type = str


LISTENING = (
    Setting(
        "--host",
        "ADDRESS",
        "where to listen (default: 127.0.0.1, which only this machine can reach)",
    ),
    Setting("--port", "N", "(default: 8000); 0 takes a free one", int),
    Setting("--open", None, "serve anyone who can reach the host, without keys"),
)

ENGINE = (
    Setting(
        "--dtype",
        "NAME",
        "number format (default: auto, bfloat16 where hardware has it, else float32)",
    ),
    Setting("--device", "NAME", "cpu or cuda (default: auto, cuda where there is one)"),
    Setting("--kv-memory", "SIZE", "room for KV: 512MB, 4GiB or '4096 pages' (default: 1GiB)"),
    Setting("--page", "TOKENS", "tokens a page of KV (default: 16)", int),
    Setting("--cache", "NAME", "prefix or none, which reuses nothing (default: prefix)"),
    Setting("--policy", "NAME", "which KV is evicted first (default: lru)"),
    Setting(
        "--order",
        "NAME",
        "fcfs, longest-prefix, depth-first or response-ratio: who starts first (default: fcfs)",
    ),
    Setting("--max-running", "N", "most answers generated at a time (default: 256)", int),
    Setting("--step-tokens", "N", "most tokens computed in one pass (default: 2048)", int),
    Setting("--context", "TOKENS", "longest prompt with its answer (default: the model's)", int),
    Setting(
        "--secret-file",
        "FILE",
        "what namespaces are keyed with (default: this user's own, made once)",
    ),
)

LIMITS = (
    Setting(
        "--max-waiting",
        "N",
        "requests that wait for a first token; more get a 429 (default: 256)",
        int,
    ),
    Setting("--max-body", "SIZE", "longest request (default: 8MiB)"),
    Setting("--deadline", "SECONDS", "a request takes no longer (default: 600)", float),
    Setting(
        "--send-timeout",
        "SECONDS",
        "a client that reads nothing for so long is let go (default: 30)",
        float,
    ),
    Setting(
        "--stall",
        "SECONDS",
        "a step that takes longer makes /readyz say no (default: 60)",
        float,
    ),
    Setting("--drain", "SECONDS", "time for unfinished requests at the end (default: 30)", float),
)

TELLING = (
    Setting(
        "--served-name", "NAME", "what /v1/models calls the model (default: its folder's name)"
    ),
    Setting(
        "--report",
        None,
        "put what the cache did into every answer, not only where asked for",
    ),
    Setting("--request-log", "FILE", "write a line a request, prompts as keyed chunk names"),
    Setting(
        "--event-log",
        "FILE",
        "write every event to a new file, for replay; prompts stand in it",
    ),
)

GROUPS = {"listening": LISTENING, "engine": ENGINE, "limits": LIMITS, "telling": TELLING}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", default=SUPPRESS, help=MODEL)
    _add(parser, Setting("--model", "MODEL", "the same, as the file calls it"))
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings in TOML, with the names of the flags, and tenants; flags go before them",
    )
    for title, settings in GROUPS.items():
        group = parser.add_argument_group(title)
        for setting in settings:
            _add(group, setting)


def _add(group: Any, setting: Setting) -> None:
    how: dict[str, Any] = {"default": SUPPRESS, "help": setting.text}
    if setting.metavar is None:
        how["action"] = "store_true"
    else:
        how |= {"metavar": setting.metavar, "type": setting.kind}
    group.add_argument(setting.flag, **how)


def _run(arguments: Namespace) -> int:
    from headwater.server.config import read_config

    flags = {
        name: value for name, value in vars(arguments).items() if name not in {"run", "config"}
    }
    config = read_config(arguments.config, flags)
    _require_possible(config)  # before the seconds that torch and the model take
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    quiet_libraries()
    from headwater.server.serve import listen, load, serve

    with listen(config) as bound:
        _tell("Loading the model ...")
        hw = load(config)
        host, port = bound.getsockname()[:2]
        where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        serve(hw, config, bound, lambda: _tell(_said(hw, config, where)))
    _tell("The server has ended.")
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _require_possible(config: ServerConfig) -> None:
    """Files that the engine or the server would find missing later. Raises BadSetting."""
    from headwater.engine.event_log import log_path
    from headwater.engine.secret import load_secret
    from headwater.server.request_log import request_log

    load_secret(config.secret_file)
    log_path(config.event_log)
    request_log(config.request_log).close()  # it can be written


def _said(hw: Headwater, config: ServerConfig, where: str) -> str:
    """What will be used."""
    facts, recipe = hw.loaded.model.facts, hw.recipe
    dtype = str(facts.dtype).removeprefix("torch.")
    return f"""\
Headwater serves {config.served_name or hw.loaded.folder.name} at {where}
  model     {short_path(hw.loaded.folder.path)}
            {dtype} on {hw.loaded.model.device.type}, context {recipe.settings.context} tokens
  KV        {size(recipe.pages * hw.page_bytes)}: {recipe.pages} pages of {recipe.page} tokens, \
{recipe.pages * recipe.page} in all; cache {recipe.cache}, policy {recipe.policy}
  batch     {recipe.settings.running} answers, {recipe.settings.step_tokens} tokens a pass, \
order {recipe.settings.order.value}
  tenants   {_tenants(config)}
  limits    {config.max_waiting} waiting, bodies of {size(config.body_bytes)}, \
{config.deadline:g} s a request
  logs      {_logs(config)}
  try       headwater doctor {where}
            page {where}/   reference {where}/docs"""


def _tenants(config: ServerConfig) -> str:
    names = [f"{each.name} (admin)" if each.admin else each.name for each in config.tenants]
    if all(each.admin for each in config.tenants):
        return ", ".join([*names, "everyone, without a key"])
    return ", ".join(names)


def _logs(config: ServerConfig) -> str:
    kept = [
        f"{what} in {short_path(Path(file).expanduser())}"
        for what, file in (("requests", config.request_log), ("events", config.event_log))
        if file is not None
    ]
    return ", ".join(kept) or "warnings here, nothing of requests"


COMMAND = Command(
    name="serve",
    help="serve a model over HTTP, in OpenAI's and Anthropic's shapes",
    examples="""\
  # the default model, for this machine only
  headwater serve

  # settings and tenants from a file, a flag over them
  headwater serve --config headwater.toml --kv-memory 4GiB

  # ask it
  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}'""",
    arguments=_arguments,
    run=_run,
)
