"""The server as a process: signals, a sudden end, and what it writes."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx2
import pytest

from tests.server.live import ADMIN, ALICE, BOB, PATIENCE, raw, request_of, said, wait_until

CHAT = "/v1/chat/completions"
LONG = {"messages": said(), "max_tokens": 1900, "ignore_eos": True, "stream": True}
SECRET = "xylophone"
NAMESPACES = "5ec4e7" * 10 + "5ec4"
"""The secret that namespaces are keyed with."""


class Process:
    """`headwater serve` with a configuration, on a port of its own."""

    def __init__(self, config, output):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config.write_text(config.read_text().replace("PORT", str(self.port)))
        self._command = [sys.executable, "-m", "headwater", "serve", "--config", str(config)]
        self.output = output
        self.http = httpx2.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {ALICE}"},
            timeout=PATIENCE,
        )
        self._opened = [self.http]
        self.start()

    def opened(self, client):
        """Something to be closed with the process, if not before."""
        self._opened.append(client)
        return client

    def start(self):
        with self.output.open("ab") as file:
            self._process = subprocess.Popen(self._command, stdout=file, stderr=file)
        wait_until(self._answers, patience=3 * PATIENCE)

    def _answers(self):
        assert self._process.poll() is None, self.output.read_text()
        with contextlib.suppress(httpx2.TransportError):
            return self.http.get("/readyz").status_code == 200
        time.sleep(0.1)
        return False

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Its exit status, once it has ended."""
        return self._process.wait(PATIENCE)

    def close(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for each in self._opened:
            each.close()


@pytest.fixture
def process(folders, tmp_path, home):
    """A server with two tenants and an admin, in a process of its own."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(NAMESPACES)
    config = tmp_path / "headwater.toml"
    config.write_text(
        f"""
        port = PORT
        model = "{folders["parrot"]}"
        dtype = "float32"
        kv_memory = "1024 pages"
        request_log = "{tmp_path / "requests.jsonl"}"
        secret_file = "{secret}"
        [[tenants]]
        name = "root"
        keys = ["{ADMIN}"]
        admin = true
        [[tenants]]
        name = "alice"
        keys = ["{ALICE}"]
        [[tenants]]
        name = "bob"
        keys = ["{BOB}"]
        """
    )
    process = Process(config, tmp_path / "output")
    yield process
    process.close()


def _ask(process, **named):
    return process.http.post(CHAT, json={"messages": said(SECRET)} | named)


@pytest.mark.slow
def test_a_signal_lets_what_runs_end_and_nobody_in(process):
    """And nothing of keys, prompts or answers is written meanwhile."""
    assert _ask(process).status_code == 200
    assert _ask(process, temperature=-1).status_code == 400
    assert process.http.get(f"/{SECRET}").status_code == 404
    admin = {"Authorization": f"Bearer {ADMIN}"}
    shown = process.http.get("/v1/admin/tree", params={"text": True}, headers=admin)
    assert SECRET in shown.text
    wrong = {"Authorization": "Bearer nobody's-key-at-all"}
    assert process.http.get("/v1/models", headers=wrong).status_code == 401
    running = raw(process, request_of(CHAT, LONG, Authorization=f"Bearer {ALICE}"))
    seen = running.recv(1)
    process.signal(signal.SIGTERM)
    statuses = set()
    while 503 not in statuses:
        statuses.add(_ask(process).status_code)
    assert process.http.get("/readyz").status_code == 503
    assert process.http.get("/healthz").status_code == 200
    while came := running.recv(65536):
        seen += came
    running.close()
    assert b"data: [DONE]" in seen
    assert process.wait() == 0
    written = process.output.read_text()
    assert "at http://127.0.0.1" in written
    for secret in (ALICE, BOB, ADMIN, "nobody's", SECRET, NAMESPACES, "Traceback"):
        assert secret not in written


@pytest.mark.slow
def test_a_server_that_was_killed_comes_back_on_its_port_under_load(process):
    stop = threading.Event()
    statuses, errors = [], []

    def client():
        while not stop.is_set():
            try:
                statuses.append(_ask(process).status_code)
            except httpx2.TransportError as error:
                errors.append(error)
                time.sleep(0.3)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for each in clients:
        each.start()
    try:
        wait_until(lambda: len(statuses) > 20)
        process.signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        before = len(statuses)
        process.start()
        wait_until(lambda: len(statuses) > before + 40)
    finally:
        stop.set()
        for each in clients:
            each.join()
    assert set(statuses) == {200}
    assert errors  # while there was none
    usage = _ask(process).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


HANGING = """
import sys, time
from headwater.server.config import ServerConfig
from headwater.server.serve import listen, load, serve
config = ServerConfig(
    port=0, model=sys.argv[1], dtype="float32", kv_memory="64 pages", drain=0.2, stall=0.5
)
hw = load(config)
hw._engine._runner.run = lambda *_: time.sleep(1000)
bound = listen(config)
serve(hw, config, bound, lambda: print(bound.getsockname()[1], flush=True))
"""


@pytest.mark.slow
def test_a_step_that_hangs_does_not_keep_the_process(folders, home):
    command = [sys.executable, "-c", HANGING, str(folders["parrot"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as hanging:
        port = int(hanging.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(request_of(CHAT, {"messages": said()}))
            time.sleep(0.5)
            hanging.send_signal(signal.SIGTERM)
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
        _, errors = hanging.communicate(timeout=PATIENCE)
    assert hanging.returncode == 1
    assert b"A step did not end within 0.5 s" in errors


# The same, in a thread, where time can be slowed


def _end(server):
    server._server.handle_exit(signal.SIGTERM, None)


@pytest.mark.parametrize("signals", [1, 2])
def test_what_takes_too_long_is_told_that_the_server_ended(live, signals):
    server = live(drain=0.3 if signals == 1 else 100)
    server.runner.delay = 0.05
    streamed = raw(server, request_of(CHAT, LONG))
    seen = streamed.recv(1)
    whole = raw(server, request_of(CHAT, LONG | {"stream": False}))
    wait_until(lambda: server.hw.stats().running == 2)
    for _ in range(signals):
        _end(server)
    while came := streamed.recv(65536):
        seen += came
    assert b"The server ended before the request did." in seen.rpartition(b"data: ")[2]
    assert whole.recv(100).startswith(b"HTTP/1.1 503")
    for each in (streamed, whole):
        each.close()
    server._thread.join(PATIENCE)
    assert not server._thread.is_alive()
    assert not server.service.unfinished
    wait_until(lambda: server.is_idle)


def test_an_idle_server_ends_at_once(live):
    server = live()
    lingering = server.http()
    lingering.get("/healthz")  # its connection stays open
    _end(server)
    server._thread.join(10)
    assert not server._thread.is_alive()
