"""Starting and ending a server: load, listen, drain."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn

from headwater.engine.api import Headwater
from headwater.errors import BadSetting, EngineStopped
from headwater.observe.metrics import Metrics, Moment
from headwater.server.app import create_app
from headwater.server.config import ServerConfig
from headwater.server.connection import Connection
from headwater.server.errors import ApiError
from headwater.server.moment import moment_of
from headwater.server.recorder import Recorder
from headwater.server.request_log import request_log
from headwater.server.service import Service
from headwater.server.tenants import ANYONE

log = logging.getLogger(__name__)

SWITCH = 0.0002
"""Seconds for which a thread keeps the interpreter when another one wants it."""

LAST_WORDS = 3
"""Seconds for answers that were cut off to reach their clients."""


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
    return Headwater(
        config.model,
        dtype=config.dtype,
        device=config.device,
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
    server = Server(make_service(hw, config), ready)
    settle()
    try:
        server.run(sockets=[bound])
    finally:
        server.close()
        _close(hw, config.stall)


def settle() -> None:
    """Make a process at home with an engine's thread and an event loop in it.

    What is loaded stays, so no collection needs to walk through it, which stops both for a tenth of
    a second. And with pieces to send the loop waits for the engine's Python no longer than it takes
    to send a few: measured with 50 streams, the median piece then arrives a third sooner.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH)


def make_service(hw: Headwater, config: ServerConfig) -> Service:
    """A service around an engine."""

    def moment() -> Moment | None:  # asked at a scrape, when there is a service
        return moment_of(service)

    names = [tenant.name for tenant in config.tenants or (ANYONE,)]
    recorder = Recorder(Metrics(moment, names), request_log(config.request_log), hw.chunk_names)
    service = Service(hw, config, recorder)
    return service


class Server(uvicorn.Server):
    """Listens for a service until a signal comes. The first one closes the desk: what runs goes on
    for a while, and who comes is told to ask elsewhere. A second one ends at once."""

    def __init__(self, service: Service, ready: Callable[[], None]) -> None:
        self._service = service
        self._ready = ready
        self._drained_by: float | None = None
        self._has_told = False
        protocol = partial(Connection, patience=service.config.send_timeout)
        settings = uvicorn.Config(
            create_app(service),
            http=cast("Any", protocol),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=60,  # a client that is about to ask again must not find it closed
            timeout_graceful_shutdown=LAST_WORDS,
        )
        super().__init__(settings)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; whether to end."""
        self._tell_of_a_crash()
        ends = await super().on_tick(counter)
        return ends or self._is_drained

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.desk.is_closed = True
        ended = "The server ended before the request did."
        self._service.fail(ApiError(503, ended, code="draining"))
        await super().shutdown(sockets)

    def close(self) -> None:
        self._service.close()

    @property
    def _is_drained(self) -> bool:
        if self._drained_by is None:
            return False
        return not self._service.unfinished or time.monotonic() > self._drained_by

    def _tell_of_a_crash(self) -> None:
        """Once, in the log: clients are only told that the engine has stopped."""
        if self._service.hw.healthy or self._has_told:
            return
        self._has_told = True
        try:
            self._service.hw.stats()
        except EngineStopped as error:
            log.critical("%s", error, exc_info=error.__cause__)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.desk.is_closed = True
        if self._drained_by is None:
            self._drained_by = time.monotonic() + self._service.config.drain
        else:
            super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn raises the signal again when it has ended; here ending is what was asked for."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _close(hw: Headwater, patience: float) -> None:
    """End the engine. One that hangs in a step would keep the process for ever."""
    closing = threading.Thread(target=hw.close, args=("cancel",), daemon=True)
    closing.start()
    closing.join(patience)
    if closing.is_alive():
        log.critical("A step did not end within %g s; the process ends without it.", patience)
        os._exit(1)
