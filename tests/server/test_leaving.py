"""Clients that go away, do not read, or ask for too much: others do not pay for them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

import openai
import pytest

from headwater.server.tenants import Tenant
from tests.server.live import ALICE, BOB, raw, request_of, said, wait_until

CHAT = "/v1/chat/completions"
LONG = {"messages": said(), "max_tokens": 1900, "ignore_eos": True}


def _steps(live):
    return live.hw.progress.steps


@pytest.fixture
def slow(live):
    """A server whose steps take a tenth of a second: 1900 tokens would take three minutes."""
    server = live()
    server.runner.delay = 0.1
    return server


def _running(server, how_many=1):
    wait_until(lambda: server.hw.stats().running == how_many)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("way", ["closed", "reset"])
def test_a_client_that_leaves_cancels_its_request_within_a_step(slow, stream, way):
    connection = raw(slow, request_of(CHAT, LONG | {"stream": stream}))
    _running(slow)
    before = _steps(slow)
    if way == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    wait_until(lambda: slow.is_idle)
    assert _steps(slow) - before <= 4  # a step or two for the news to come, one to take effect


def test_a_client_that_leaves_before_its_turn_never_runs(slow):
    staying = raw(slow, request_of(CHAT, LONG))
    _running(slow)
    leaving = [raw(slow, request_of(CHAT, LONG | {"messages": said(str(n))})) for n in range(5)]
    for each in leaving:
        each.close()
    wait_until(lambda: len(slow.service.unfinished) == 1)
    staying.close()
    wait_until(lambda: slow.is_idle)


def test_what_was_computed_for_a_client_that_left_is_counted(slow):
    connection = raw(slow, request_of(CHAT, LONG | {"stream": True}))
    connection.recv(1)  # the first token has come
    connection.close()
    wait_until(lambda: slow.is_idle and slow.service.recorder.last)
    [entry] = slow.service.recorder.last
    assert entry.outcome == "cut off"
    assert entry.cache.generated >= 1
    assert 'outcome="cut off"' in slow.http().get("/metrics").text


def test_several_answers_of_one_request_end_together(slow):
    body = {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 1900, "ignore_eos": True}
    connection = raw(slow, request_of("/v1/completions", body | {"stream": True}))
    _running(slow, 6)
    connection.close()
    wait_until(lambda: slow.is_idle)


def test_a_prewarm_ends_with_its_client(slow):
    slow.runner.delay = 0.3
    connection = raw(slow, request_of("/v1/cache/prewarm", {"prompt": "x" * 1900}))
    wait_until(lambda: slow.service.unfinished)
    connection.close()
    wait_until(lambda: slow.is_idle)


# Slow readers


TOLD = {"messages": said(), "ignore_eos": True, "stream": True} | {
    "logprobs": True,
    "top_logprobs": 20,
}
"""Two kilobytes a token."""


def _narrow(live, body):
    """A connection whose reader takes very little at a time."""
    connection = live.opened(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", live.port))
    connection.sendall(request_of(CHAT, body))
    return connection


@pytest.mark.parametrize("bytes_a_second", [0, 1])
def test_who_does_not_read_is_cut_off_and_holds_nobody(live, bytes_a_second):
    server = live(send_timeout=1.0, send_buffer=8192)
    connection = _narrow(server, TOLD | {"max_tokens": 500})
    stop = threading.Event()
    seen = []

    def trickle():
        while bytes_a_second and not stop.wait(1 / bytes_a_second):
            with contextlib.suppress(OSError):
                seen.append(connection.recv(1))

    reading = threading.Thread(target=trickle)
    reading.start()
    try:
        wait_until(lambda: server.service.unfinished)
        for _ in range(5):  # others are served meanwhile
            assert server.http().post(CHAT, json={"messages": said()}).status_code == 200
        wait_until(lambda: server.is_idle)
    finally:
        stop.set()
        reading.join()
    with contextlib.suppress(ConnectionError):  # cut off, not closed
        while came := connection.recv(65536):
            seen.append(came)
    connection.close()
    assert b"[DONE]" not in b"".join(seen)


def test_who_reads_slowly_but_reads_gets_everything(live):
    server = live(send_timeout=5.0, send_buffer=8192)
    connection = _narrow(server, TOLD | {"max_tokens": 200})
    seen = b""
    while not seen.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
        came = connection.recv(2000)
        assert came
        seen += came
        time.sleep(0.001)
    connection.close()


# Bounds


def test_more_than_a_tenants_quota_is_a_429(live):
    server = live(
        tenants=(
            Tenant(name="alice", keys=(ALICE,), max_requests=2),
            Tenant(name="bob", keys=(BOB,)),
        )
    )
    server.runner.delay = 0.05
    running = [
        raw(server, request_of(CHAT, LONG, Authorization=f"Bearer {ALICE}")) for _ in range(2)
    ]
    wait_until(lambda: server.service.desk.busy["alice"] == 2)
    found = server.http(ALICE).post(CHAT, json=LONG)
    assert found.status_code == 429
    assert int(found.headers["Retry-After"]) >= 1
    assert found.json()["error"]["code"] == "too_many_requests"
    with pytest.raises(openai.RateLimitError):
        server.openai(ALICE).completions.create(model="parrot", prompt="x")
    assert server.http(BOB).post(CHAT, json={"messages": said()}).status_code == 200
    for each in running:
        each.close()
    wait_until(lambda: server.is_idle)
    assert server.http(ALICE).post(CHAT, json={"messages": said()}).status_code == 200
    assert server.service.desk.refused["alice", "quota"] == 2


def test_the_last_token_frees_its_place_before_it_is_sent(live):
    server = live(tenants=(Tenant(name="alice", keys=(ALICE,), max_requests=1),))
    client = server.openai(ALICE)
    for stream in (True, False) * 10:  # each right behind the end of the last
        done = client.completions.create(model="parrot", prompt="x", max_tokens=2, stream=stream)
        if stream:
            list(done)


def test_a_full_queue_is_a_429(live):
    server = live(max_waiting=3, max_running=1)
    server.runner.delay = 0.05
    running = raw(server, request_of(CHAT, LONG | {"stream": True}))
    running.recv(1)
    waiting = [raw(server, request_of(CHAT, LONG | {"messages": said(str(n))})) for n in range(3)]
    wait_until(lambda: server.service.desk.waiting == 3)
    found = server.http().post(CHAT, json=LONG)
    assert found.status_code == 429
    assert int(found.headers["Retry-After"]) >= 1
    assert found.json()["error"]["code"] == "queue_full"
    found = server.http().post("/v1/messages", json=LONG | {"max_tokens": 5})
    assert found.json()["error"]["type"] == "rate_limit_error"
    for each in (running, *waiting):
        each.close()
    wait_until(lambda: server.is_idle)


def test_a_request_that_has_its_first_token_waits_no_more(live):
    server = live(max_waiting=1)
    server.runner.delay = 0.02
    running = []
    for stream in (True, False, True, False):
        running.append(raw(server, request_of(CHAT, LONG | {"stream": stream})))
        wait_until(lambda: server.service.desk.busy["default"] == len(running))
        wait_until(lambda: server.service.desk.waiting == 0)
    for each in running:
        each.close()


@pytest.mark.parametrize("stream", [True, False])
def test_a_deadline_ends_a_request(slow, stream):
    body = LONG | {"headwater": {"deadline": 0.5}, "stream": stream}
    with slow.http().stream("POST", CHAT, json=body) as found:
        text = found.read().decode()
    assert found.status_code == (200 if stream else 408)
    assert "did not finish within 0.5 s." in text
    assert '"deadline"' in text
    wait_until(lambda: slow.is_idle)


def test_a_deadline_does_not_wait_for_a_step(slow):
    slow.runner.delay = 2
    found = slow.http().post(CHAT, json=LONG | {"headwater": {"deadline": 0.2}})
    assert found.status_code == 408
    assert _steps(slow) == 0
    slow.runner.delay = 0


def test_the_servers_deadline_is_the_longest(live):
    server = live(deadline=0.3)
    server.runner.delay = 0.1
    found = server.http().post(CHAT, json=LONG | {"headwater": {"deadline": 100}})
    assert found.status_code == 504
    assert "within 0.3 s" in found.text
