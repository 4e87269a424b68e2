"""A real server in a thread, and its real clients."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import msgspec
import openai

from headwater.engine.api import Headwater
from headwater.engine.loaded import LoadedModel
from headwater.server.config import ServerConfig
from headwater.server.serve import Server, listen, make_service
from headwater.server.tenants import Tenant

PATIENCE = 60
"""Seconds, for a machine that is busy with other things."""

ALICE, BOB, ADMIN = "key-of-alice-0001", "key-of-bob-000002", "key-of-the-admin3"

TENANTS = (
    Tenant(name="alice", keys=(ALICE,)),
    Tenant(name="bob", keys=(BOB,)),
    Tenant(name="root", keys=(ADMIN,), admin=True),
)


class Live:
    """Serves a model on a free port until it is closed."""

    def __init__(
        self, loaded: LoadedModel, *, check: bool = True, send_buffer: int = 0, **settings: Any
    ) -> None:
        """
        check: count every page after every event.
        send_buffer: bytes that the system keeps of what is not read; 0 is its own choice.
        """
        settings = {"port": 0, "kv_memory": "1024 pages", "page": 4} | settings
        self.config = ServerConfig(**settings)
        options = self.config.engine_options()
        self.hw = Headwater(loaded, secret=bytes(32), check=check, **options)
        self.runner = Throttle(self.hw._engine._runner)
        self.hw._engine._runner = self.runner
        bound = listen(self.config)
        if send_buffer:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.port = bound.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        ready = threading.Event()
        self.service = make_service(self.hw, self.config)
        self._server = Server(self.service, ready.set)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [bound]})
        self._thread.start()
        assert ready.wait(PATIENCE)
        self._clients: list[Any] = []

    def http(self, key: str | None = None) -> httpx2.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self.opened(httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE))

    def openai(self, key: str = "none") -> openai.OpenAI:
        return self.opened(
            openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE)
        )

    def anthropic(self, key: str = "none") -> anthropic.Anthropic:
        return self.opened(
            anthropic.Anthropic(base_url=self.url, api_key=key, max_retries=0, timeout=PATIENCE)
        )

    def opened(self, client: Any) -> Any:
        """Something to be closed with the server, if not before."""
        self._clients.append(client)
        return client

    @property
    def is_idle(self) -> bool:
        """Nothing is left of any request."""
        service, stats = self.service, self.hw.stats()
        busy = service.desk.waiting, service.desk.busy.total(), len(service.unfinished)
        engine = stats.running, stats.loading, stats.waiting, stats.leases, stats.promises
        pages = stats.pages
        return (
            not any((*busy, *engine))
            and pages.private == pages.in_io == 0
            and pages.free + pages.cached == pages.total
        )

    @property
    def connections(self) -> int:
        """How many clients it has."""
        return len(self._server.server_state.connections)

    def forget(self) -> None:
        """Begin as if nothing had been asked."""
        wait_until(lambda: self.is_idle)
        for domain in ("", *(tenant.sharing for tenant in self.config.tenants)):
            self.hw.cache.flush(b"", domain, None)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.runner.delay = 0
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._server.close()
        self.hw.close("cancel")


class Throttle:
    """The engine's runner, made slow or faulty while a test says so."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.delay = 0.0
        self.fault: Exception | None = None

    def run(self, step: Any, params: Any) -> Any:
        time.sleep(self.delay)
        if self.fault is not None:
            raise self.fault
        return self._runner.run(step, params)


def raw(live: Live, sent: bytes = b"") -> socket.socket:
    """A connection on which a test says what no client would."""
    connection = socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE)
    connection.sendall(sent)
    return live.opened(connection)


def request_of(path: str, body: Any, **headers: str) -> bytes:
    """A POST as it goes over the wire; a body that is no bytes becomes JSON."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    named = {"Host": "localhost", "Content-Type": "application/json"}
    named |= {"Content-Length": str(len(content))} | headers
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content


def wait_until(true: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait until it is true, which is to be soon, and must be within `patience` seconds."""
    ends = time.monotonic() + patience
    while not true():
        assert time.monotonic() < ends, "it never came true"
        time.sleep(0.005)


def said(message: str = "Hello") -> list[dict[str, str]]:
    """A chat of one message."""
    return [{"role": "user", "content": message}]
