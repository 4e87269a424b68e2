"""Starting and ending a server: load, listen, drain."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from types import FrameType

import uvicorn

from headwater.engine.api import Headwater
from headwater.engine.loaded import LoadedModel
from headwater.engine.stats import Stats
from headwater.errors import BadSetting, EngineStopped
from headwater.observe.metrics import Metrics, Moment
from headwater.server.app import create_app
from headwater.server.config import ServerConfig
from headwater.server.recorder import Recorder
from headwater.server.request_log import request_log
from headwater.server.service import Service


def listen(config: ServerConfig) -> socket.socket:
    """A bound socket, before anything slow is done. Raises BadSetting when it cannot be had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((config.host, config.port))
    except OSError as error:
        bound.close()
        raise BadSetting(
            f"{config.host} port {config.port} cannot be listened on: {error.strerror}."
        ) from error
    return bound


def load(config: ServerConfig) -> Headwater:
    """The engine a configuration asks for. Raises HeadwaterError for what cannot work."""
    loaded = LoadedModel.load(config.model, config.dtype, config.device)
    return Headwater(
        loaded,
        secret=config.secret_file,
        log=config.event_log,
        **config.engine_options(),
    )


def serve(
    hw: Headwater, config: ServerConfig, bound: socket.socket, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then let unfinished requests end, and end the engine.

    ready: called when requests are answered.
    """
    service = make_service(hw, config)
    settings = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=max(1, int(config.drain)),
        limit_concurrency=None,
    )
    server = _Server(settings, service, ready)
    try:
        server.run(sockets=[bound])
    finally:
        hw.close("cancel")
        service.recorder.close()


def make_service(hw: Headwater, config: ServerConfig) -> Service:
    """A service around an engine."""
    name = config.served_name or hw.loaded.folder.name
    refused: Counter[tuple[str, str]] = Counter()
    metrics = Metrics(_moment(hw, name, refused))
    recorder = Recorder(metrics, request_log(config.request_log), hw.chunk_names)
    service = Service(hw, config, recorder)
    service.desk.refused = refused
    return service


class _Server(uvicorn.Server):
    """Stops letting requests in at the first signal; a second one ends at once."""

    def __init__(
        self, settings: uvicorn.Config, service: Service, ready: Callable[[], None]
    ) -> None:
        super().__init__(settings)
        self._service = service
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.desk.is_closed = True
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn raises the signal again when it has ended; here ending is what was asked for."""
        before = {
            each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _moment(
    hw: Headwater, name: str, refused: Counter[tuple[str, str]]
) -> Callable[[], Moment | None]:
    def moment() -> Moment | None:
        try:
            stats = hw.stats()
        except EngineStopped:
            return None
        return _moment_of(hw, name, stats, refused)

    return moment


def _moment_of(hw: Headwater, name: str, stats: Stats, refused: Counter[tuple[str, str]]) -> Moment:
    pages = stats.pages
    return Moment(
        pages={
            "free": pages.free,
            "cached": pages.cached,
            "private": pages.private,
            "in_io": pages.in_io,
        },
        page_bytes=hw.page_bytes,
        pinned=pages.pinned,
        evicted=pages.evicted,
        sequences={
            "running": stats.running,
            "loading": stats.loading,
            "waiting": stats.waiting,
        },
        leases=stats.leases,
        promises=stats.promises,
        holds=stats.holds,
        steps=hw.progress.steps,
        shares=stats.shares,
        ready=hw.healthy,
        info={"version": version("headwater"), "model": name, "epoch": stats.epoch[:16]},
        refused=dict(refused),
    )
