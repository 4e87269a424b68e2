"""What a server is told: flags of `headwater serve`, or a TOML file with the same names."""

from __future__ import annotations

import ipaddress
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headwater.engine.options import Named, read_options
from headwater.engine.units import parse_bytes
from headwater.errors import BadSetting
from headwater.server.tenants import Tenant, Tenants


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    host, port: where to listen; only this machine can reach 127.0.0.1. Port 0 takes a free one.
    open: let anyone who can reach the host ask, without a key.
    model, dtype, device: as `Headwater` takes them. served_name: what /v1/models calls the model.
    kv_memory, page, cache, policy, order, max_running, step_tokens, context: see `Options`.
    secret_file: what namespaces are keyed with, so that restarts and fleets meet.
    event_log: a new file for every event; prompts stand in it.
    request_log: a file for a line a request, prompts as keyed chunk names.
    max_waiting: requests that wait for their first token; more get a 429.
    max_body: bytes of a request. deadline: seconds a request may take at most.
    send_timeout: seconds a client may take to read what was sent.
    stall: seconds a step may take before /readyz says no. drain: seconds to finish at the end.
    report: put the cache's report into every answer, not only where it is asked for.
    tenants: see `Tenant`.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    open: bool = False
    model: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    served_name: str | None = None
    kv_memory: str | int = "1GiB"
    page: int = 16
    cache: str = "prefix"
    policy: str = "lru"
    order: str = "fcfs"
    max_running: int = 256
    step_tokens: int = 2048
    context: int | None = None
    secret_file: str | None = None
    event_log: str | None = None
    request_log: str | None = None
    max_waiting: int = 256
    max_body: str | int = "8MiB"
    deadline: float = 600.0
    send_timeout: float = 30.0
    stall: float = 60.0
    drain: float = 30.0
    report: bool = False
    tenants: tuple[Tenant, ...] = ()

    @property
    def body_bytes(self) -> int:
        return parse_bytes(self.max_body)

    def engine_options(self) -> Named:
        """What of this the engine takes, by keyword."""
        floors = {t.sharing: t.kv_floor for t in self.tenants if t.has_floor}
        return Named(
            kv_memory=self.kv_memory,
            page=self.page,
            cache=self.cache,
            policy=self.policy,
            order=self.order,
            max_running=self.max_running,
            step_tokens=self.step_tokens,
            context=self.context,
            floors=floors,
        )


def read_config(file: Path | None, flags: Mapping[str, Any]) -> ServerConfig:
    """A file's settings, and flags over them. Raises BadSetting with the name of what is wrong."""
    settings: dict[str, Any] = {} if file is None else _read(file)
    settings |= flags
    try:
        config = msgspec.convert(settings, ServerConfig)
    except msgspec.ValidationError as error:
        raise BadSetting(f"{_where(file)}{error}.") from error
    _check(config)
    return config


def _read(file: Path) -> dict[str, Any]:
    try:
        return _named(tomllib.loads(file.expanduser().read_text("utf-8")))
    except OSError as error:
        raise BadSetting(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise BadSetting(f"{file} is no TOML: {error}.") from error


def _named(table: Any) -> Any:
    """`kv-memory`, as flags spell it, is `kv_memory`."""
    if isinstance(table, dict):
        return {key.replace("-", "_"): _named(value) for key, value in table.items()}
    if isinstance(table, list):
        return [_named(each) for each in table]
    return table


def _where(file: Path | None) -> str:
    return "" if file is None else f"{file}: "


def _check(config: ServerConfig) -> None:
    """Whatever cannot work is refused now, as far as no model is needed to see it."""
    tenants = Tenants(config.tenants)
    if tenants.is_open and not config.open and not is_loopback(config.host):
        raise BadSetting(
            f"{config.host} can be reached from elsewhere and no tenants have keys; configure "
            "some, or say --open to serve anyone."
        )
    domains = [t.sharing for t in config.tenants if t.has_floor]
    if len(domains) != len(set(domains)):
        raise BadSetting("Two tenants give one domain a kv_floor; leave it to one of them.")
    if not 0 <= config.port < 65536:
        raise BadSetting(f"port must lie in [0, 65535], but is {config.port}.")
    if config.max_waiting < 1 or config.body_bytes < 1:
        raise BadSetting("max_waiting and max_body must be 1 or more.")
    for name in ("deadline", "send_timeout", "stall"):
        if not 0 < getattr(config, name) < math.inf:
            raise BadSetting(f"{name} must be a number of seconds above 0.")
    if not 0 <= config.drain < math.inf:
        raise BadSetting("drain must be a number of seconds, 0 or more.")
    read_options(config.engine_options())


def is_loopback(host: str) -> bool:
    """Only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
