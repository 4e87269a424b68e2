"""`headwater serve`: an OpenAI-compatible server."""

from __future__ import annotations

import logging
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.command import Command, add_model
from headwater.cli.quiet import quiet_libraries

if TYPE_CHECKING:
    from headwater.engine.api import Headwater
    from headwater.server.config import ServerConfig


def _arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings in TOML, with the names of the flags"
    )
    listening = parser.add_argument_group("listening")
    _add(listening, "--host", "ADDRESS", "127.0.0.1, which only this machine can reach")
    _add(listening, "--port", "N", "8000; 0 takes a free one", kind=int)
    listening.add_argument(
        "--open",
        action="store_true",
        default=SUPPRESS,
        help="serve anyone who can reach the host, without keys",
    )
    engine = parser.add_argument_group("engine")
    _add(engine, "--dtype", "NAME", "auto: bfloat16 where hardware has it, else float32")
    _add(engine, "--device", "NAME", "auto: CUDA where there is one, else cpu")
    _add(engine, "--kv-memory", "SIZE", "room for KV: 1GiB, 512MB or '4096 pages'")
    _add(engine, "--page", "TOKENS", "16", kind=int)
    _add(engine, "--cache", "NAME", "prefix; none reuses nothing, to compare with")
    _add(engine, "--policy", "NAME", "which KV is evicted first: lru")
    _add(engine, "--order", "NAME", "fcfs, longest-prefix, depth-first or response-ratio")
    _add(engine, "--max-running", "N", "256: most answers at a time", kind=int)
    _add(engine, "--step-tokens", "N", "2048: most tokens in one pass", kind=int)
    _add(engine, "--context", "TOKENS", "longest prompt with its answer; the model's", kind=int)
    _add(engine, "--secret-file", "FILE", "what namespaces are keyed with; this user's own")
    limits = parser.add_argument_group("limits")
    _add(limits, "--max-waiting", "N", "256: requests that wait for a first token", kind=int)
    _add(limits, "--max-body", "SIZE", "8MiB: longest request")
    _add(limits, "--deadline", "SECONDS", "600: a request takes no longer", kind=float)
    _add(limits, "--send-timeout", "SECONDS", "30: for a client to read", kind=float)
    _add(limits, "--stall", "SECONDS", "60: a longer step makes /readyz say no", kind=float)
    _add(limits, "--drain", "SECONDS", "30: for unfinished requests at the end", kind=float)
    telling = parser.add_argument_group("telling")
    _add(telling, "--served-name", "NAME", "what /v1/models calls the model")
    telling.add_argument(
        "--report",
        action="store_true",
        default=SUPPRESS,
        help="put what the cache did into every answer, not only where asked for",
    )
    _add(telling, "--request-log", "FILE", "a line a request, prompts as keyed chunk names")
    _add(telling, "--event-log", "FILE", "every event, for replay; prompts stand in it")


def _add(group: Any, flag: str, metavar: str, text: str, kind: type = str) -> None:
    """A setting that the configuration may give as well: it has no default of its own."""
    group.add_argument(flag, metavar=metavar, type=kind, default=SUPPRESS, help=text)


def _run(arguments: Namespace) -> int:
    from headwater.server.config import read_config

    flags = {
        name: value for name, value in vars(arguments).items() if name not in {"run", "config"}
    }
    if flags.get("model") is None:
        flags.pop("model", None)
    config = read_config(arguments.config, flags)  # before the seconds that torch takes
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    quiet_libraries()
    from headwater.server.serve import listen, load, serve

    bound = listen(config)
    with bound:
        print("Loading the model ...", file=sys.stderr, flush=True)
        hw = load(config)
        host, port = bound.getsockname()[:2]
        where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        serve(
            hw, config, bound, lambda: print(_said(hw, config, where), file=sys.stderr, flush=True)
        )
    return 0


def _said(hw: Headwater, config: ServerConfig, where: str) -> str:
    """What will be used."""
    facts, recipe = hw.loaded.model.facts, hw.recipe
    tokens = recipe.pages * recipe.page
    gib = recipe.pages * hw.page_bytes / 2**30
    names = [tenant.name for tenant in config.tenants]
    return f"""\
Headwater serves {config.served_name or hw.loaded.folder.name} at {where}
  model     {hw.loaded.folder.path}
            {str(facts.dtype).removeprefix("torch.")} on {hw.loaded.model.device.type}, \
context {recipe.settings.context} tokens
  KV        {gib:.2f} GiB: {recipe.pages} pages of {recipe.page} tokens, {tokens} in all; \
{recipe.cache} cache, {recipe.policy}
  batch     {recipe.settings.running} answers, {recipe.settings.step_tokens} tokens a pass, \
order {recipe.settings.order.value}
  tenants   {", ".join(names) if names else "none: everyone is one, without a key"}
  limits    {config.max_waiting} waiting, bodies of {config.body_bytes} bytes, \
{config.deadline:.0f} s a request
  try       curl {where}/v1/models      page: {where}/      docs: {where}/docs"""


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
