"""When the engine fails or hangs: whoever waits is told, and so is whoever watches."""

from __future__ import annotations

import logging
import time

import openai
import pytest

from tests.server.live import raw, request_of, said, wait_until

LONG = {"messages": said(), "max_tokens": 1900, "ignore_eos": True}
CHAT = "/v1/chat/completions"
SECRET = "xylophone"


@pytest.fixture
def broken(live):
    """A server whose engine is going to fail."""
    server = live()
    server.runner.delay = 0.02
    return server


def _break(server):
    server.runner.fault = RuntimeError(f"out of cheese, {SECRET}")
    wait_until(lambda: not server.hw.healthy)


def _until_closed(connection):
    seen = b""
    while came := connection.recv(65536):
        seen += came
        if seen.endswith(b"0\r\n\r\n"):
            break
    connection.close()
    return seen.decode()


def test_a_crash_fails_every_request_loudly(broken, caplog):
    bodies = {
        CHAT: LONG,
        "/v1/messages": {"messages": said(), "max_tokens": 50},
        "/v1/responses": {"input": "Hello"},
    }
    broken.runner.delay = 0.1
    streams = {
        path: raw(broken, request_of(path, body | {"stream": True}))
        for path, body in bodies.items()
    }
    for each in streams.values():
        assert each.recv(1)
    whole = raw(broken, request_of(CHAT, LONG))
    wait_until(lambda: broken.hw.stats().running == 4)
    _break(broken)
    assert whole.recv(65536).startswith(b"HTTP/1.1 503")
    whole.close()
    for path, each in streams.items():
        told = _until_closed(each)
        assert "The engine has stopped." in told.rsplit("data: ", 1)[1], path
        assert "[DONE]" not in told
        assert SECRET not in told
        if path != CHAT:
            assert "event: error" in told
    assert not broken.service.unfinished
    assert broken.service.desk.busy.total() == 0
    wait_until(lambda: any("out of cheese" in record.message for record in caplog.records))
    assert [r.levelno for r in caplog.records if "out of cheese" in r.message] == [logging.CRITICAL]


def test_clients_see_a_crash_in_their_stream_as_an_error(broken):
    stream = broken.openai().chat.completions.create(
        model="parrot", messages=said(), stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    _break(broken)
    with pytest.raises(openai.APIError, match="engine has stopped"):
        list(stream)


def test_after_a_crash_readiness_is_off_and_the_process_is_alive(broken):
    http = broken.http()
    assert http.get("/readyz").status_code == 200
    broken.runner.fault = RuntimeError("out of cheese")
    assert http.post(CHAT, json=LONG).status_code == 503
    ready = http.get("/readyz")
    assert (ready.status_code, ready.json()["reason"]) == (503, "The engine has stopped.")
    assert http.get("/healthz").status_code == 200
    assert http.post(CHAT, json=LONG).status_code == 503
    assert http.post("/v1/cache/explain", json={"prompt": "x"}).status_code == 503
    metrics = http.get("/metrics")
    assert metrics.status_code == 200
    assert "headwater_ready 0.0" in metrics.text


def test_a_step_that_hangs_turns_readiness_off_until_it_ends(live):
    server = live(stall=0.2)
    http = server.http()
    server.runner.delay = 1.5
    connection = raw(server, request_of(CHAT, {"messages": said(), "max_tokens": 1}))
    wait_until(lambda: server.service.is_stalled)
    ready = http.get("/readyz")
    assert ready.status_code == 503
    assert ready.json()["reason"] == "A step has been running for more than 0.2 s."
    assert http.get("/healthz").status_code == 200
    began = time.monotonic()
    assert "headwater_ready 0.0" in http.get("/metrics").text  # without waiting for the step
    assert http.get("/v1/models").status_code == 200
    assert server.hw.progress.steps == 0 or time.monotonic() - began > 1
    server.runner.delay = 0
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    connection.close()
    wait_until(lambda: http.get("/readyz").status_code == 200)


def test_an_unforeseen_fault_is_a_500_that_says_nothing_and_a_traceback(live, monkeypatch, caplog):
    server = live()

    def fail(*_):
        raise RuntimeError(SECRET)

    monkeypatch.setattr("headwater.server.shapes.chat.ChatShape.whole", fail)
    found = server.http().post(CHAT, json={"messages": said()})
    assert found.status_code == 500
    assert found.json()["error"]["message"] == "The server failed on this request."
    wait_until(lambda: any(record.exc_info for record in caplog.records))
    assert server.is_idle


def test_an_unforeseen_fault_in_a_stream_breaks_it_off_and_is_logged(live, monkeypatch, caplog):
    server = live()

    def fail(*_):
        raise RuntimeError(SECRET)

    monkeypatch.setattr("headwater.server.shapes.chat.ChatShape.closing", fail)
    connection = raw(server, request_of(CHAT, {"messages": said(), "stream": True}))
    told = _until_closed(connection)
    assert "chat.completion.chunk" in told
    assert not told.endswith("0\r\n\r\n")  # no client takes it for complete
    wait_until(lambda: any(record.exc_info for record in caplog.records))
    wait_until(lambda: server.is_idle)
    assert server.http().get("/healthz").status_code == 200
