"""HTTP itself: paths, methods, bodies and lines that no client of ours would send."""

from __future__ import annotations

import re
import time

import msgspec
import pytest

from tests.server.live import ALICE, Live, raw, request_of, said

CHAT = "/v1/chat/completions"
MOST = 100_000
"""Bytes of a body that are too many for the server below."""


@pytest.fixture(scope="module")
def small(models):
    """A server that takes short bodies, and has little patience."""
    live = Live(models["parrot"], max_body=MOST, send_timeout=0.5)
    yield live
    live.close()


@pytest.fixture(scope="module")
def http(small):
    return small.http()


def _post(http, content, kind="application/json"):
    return http.post(CHAT, content=content, headers={"Content-Type": kind})


def _error(found):
    """The one sentence of an error in OpenAI's shape."""
    told = found.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    assert re.fullmatch(r"\S.*\.", told["message"], re.DOTALL)
    return told["message"]


# Paths and methods


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/nothing", 404),
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/v1/embeddings", 404),
        ("GET", CHAT, 405),
        ("OPTIONS", CHAT, 405),
        ("PUT", "/healthz", 405),
        ("GET", "/v1/models/", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/..%2f..%2fpyproject.toml", 404),
        ("GET", "/%00", 404),
        ("GET", "/%ff%fe", 404),
        ("GET", "/" + "a" * 60_000, 404),
    ],
)
def test_what_is_not_there_is_told_in_json(http, method, path, status):
    found = http.request(method, path)
    assert found.status_code == status
    assert len(_error(found)) < 400
    if status == 405:
        assert found.headers["Allow"]


def test_anthropics_paths_have_its_shape(http):
    for found in (http.get("/v1/messages"), http.post("/v1/messages", json=[])):
        assert found.json()["type"] == "error"
        assert found.json()["error"]["message"]


def test_a_head_has_no_body(http):
    for path in ("/", "/healthz", "/v1/chat/completions"):
        found = http.head(path)
        assert found.status_code < 500
        assert found.content == b""


def test_health_is_told_without_a_key(keyed):
    http = keyed.http()
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.get("/readyz").json() == {"status": "ready"}


def test_the_documentation_needs_no_other_host(http):
    page = http.get("/docs")
    assert page.headers["Content-Type"].startswith("text/html")
    assert "<script" not in page.text
    assert "//" not in re.sub(r"https?://localhost", "", page.text)
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for path, methods in http.get("/openapi.json").json()["paths"].items():
        for method in methods:
            assert f"<b>{method.upper()}</b> {path}<" in page.text
    assert "max_completion_tokens" in page.text


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b'"text"',
        b"null",
        b"12",
        b"{",
        b'{"messages": NaN}',
        b'{"messages": [], "temperature": NaN}',
        b'{"messages": [], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b"[" * 50_000,
        b'{"messages": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"messages": [{"role": ' + b"[" * 900 + b"]" * 900 + b', "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": ' + b"[" * 900 + b"]" * 900 + b"}]}",
        b'{"messages": [{"role": "user", "content": "x", "tool_calls": [{"id": '
        + b"[" * 900 + b"]" * 900 + b', "function": {"name": "a"}}]}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"a": '
        + b"[" * 950 + b"]" * 950 + b"}]}",
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"a": '
        + b'{"a":' * 950 + b"1" + b"}" * 950 + b"}]}",
        b'{"messages": [{"role": "user", "content": "x"}], "seed": 1' + b"0" * 5000 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": -1' + b"0" * 40 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "\\u0000": 1}',
        b'{"messages": [{"role": "user", "content": "x"}], "' + b"n" * 90_000 + b'": 1}',
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_read_is_a_400(http, body):
    found = _post(http, body)
    assert found.status_code == 400, found.text[:300]
    assert _error(found)


@pytest.mark.parametrize(
    "more",
    [
        {"seed": 10**30},
        {"seed": -(2**63)},
        {"top_k": 10**30, "temperature": 1},
        {"max_tokens": 10**30},
        {"temperature": 1e-300},
        {"stop": "\u0000"},
        {"stop": "\U0010ffff" * 256},
        {"user": "x" * 50_000},
    ],
)
def test_numbers_and_texts_at_the_edge_are_taken(http, more):
    found = http.post(CHAT, json={"messages": said(), "max_tokens": 2} | more)
    assert found.status_code == 200, found.text


def test_a_body_of_another_type_is_refused_with_what_to_send(http):
    body = msgspec.json.encode({"messages": said()})
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        found = _post(http, body, kind)
        assert found.status_code == 415
        assert "Content-Type: application/json" in _error(found)
    assert _post(http, body, "application/json; charset=utf-8").status_code == 200


@pytest.mark.parametrize("character", ["x", "\n", "é", "🙂", '"', "\u0000"])
def test_a_line_of_100_000_characters_is_told_to_be_too_long(babbler, character):
    found = babbler.http().post(CHAT, json={"messages": said(character * 100_000)})
    assert found.status_code == 400
    assert found.json()["error"]["code"] == "context_length_exceeded"


def test_a_body_over_the_limit_is_a_413(http, small):
    found = _post(http, b"x" * (MOST + 1))
    assert found.status_code == 413
    assert str(MOST) in _error(found)

    def pieces():
        for _ in range(MOST // 1000 + 1):
            yield b"x" * 1000

    assert _post(http, pieces()).status_code == 413  # without saying its length
    found = http.post("/v1/messages", content=b"x" * (MOST + 1))
    assert found.json()["error"]["type"] == "request_too_large"
    assert _post(http, b" " * (MOST - 100) + b'{"messages": []}').status_code == 400  # was read
    assert small.is_idle


def test_a_body_that_never_ends_is_not_kept(small):
    connection = raw(small, request_of(CHAT, b"", **{"Content-Length": str(10**15)}))
    assert connection.recv(100).startswith(b"HTTP/1.1 413")
    connection.close()


def test_a_strangers_body_is_not_read(keyed):
    connection = raw(keyed, request_of(CHAT, b"", **{"Content-Length": "1000000"}))
    assert connection.recv(100).startswith(b"HTTP/1.1 401")
    connection.close()


# Lines and headers


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\nnonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50 + b"\r\n\r\n",  # TLS
    ],
)
def test_what_is_no_http_is_a_400(small, sent):
    connection = raw(small, sent)
    assert connection.recv(100).startswith(b"HTTP/1.1 400")
    connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /nothing HTTP/1.1\r\nHost: [\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\n\r\n",
        b"GET //v1/messages HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[/x HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: \xff\xff\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: \xff/\xff\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_odd_heads_are_answered_without_a_fault(small, sent):
    connection = raw(small, sent)
    status = int(connection.recv(12)[9:])
    assert 200 <= status < 500
    connection.close()


def test_a_head_without_an_end_is_cut_off(small):
    connection = raw(small, b"GET / HTTP/1.1\r\n")

    def go_on():
        for _ in range(1000):
            connection.sendall(b"X-Y: " + b"x" * 10_000 + b"\r\n")

    with pytest.raises(ConnectionError):
        go_on()
    connection.close()


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", request_of(CHAT, b"x" * 10)[:-5]]
)
def test_a_request_that_does_not_go_on_is_cut_off(small, begun):
    connection = raw(small, begun)
    began = time.monotonic()
    assert connection.recv(100) == b""
    assert time.monotonic() - began > 0.3
    connection.close()


def test_requests_in_one_go_are_answered_in_their_order(small):
    one = request_of(CHAT, {"messages": said(), "max_tokens": 1})
    connection = raw(small, one + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + one)
    seen = b""
    while seen.count(b"chat.completion") < 2:
        came = connection.recv(65536)
        assert came
        seen += came
    assert seen.index(b"chat.completion") < seen.index(b"alive") < seen.rindex(b"chat.completion")
    connection.close()


def test_a_key_is_taken_from_either_header(keyed):
    http = keyed.http()
    for headers in (
        {"Authorization": f"Bearer {ALICE}"},
        {"authorization": f"bearer   {ALICE}"},
        {"X-Api-Key": ALICE},
    ):
        assert http.get("/v1/models", headers=headers).status_code == 200
    for headers in ({}, {"Authorization": f"Basic {ALICE}"}, {"Authorization": "Bearer"}):
        found = http.get("/v1/models", headers=headers)
        assert found.status_code == 401
        assert found.headers["WWW-Authenticate"] == "Bearer"
