"""Thousands of requests of which most are left: afterwards nothing is left of any."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path

import pytest

from tests.server.live import request_of, said, wait_until
from tests.server.models import SAYING

AT_ONCE = 48
TEXTS = [f"{word} jumps over the lazy dog and says hello" for word in ("fox", "cat", "owl")]
CHAT = "/v1/chat/completions"


def _asked(rng):
    """A path, and a body to send there."""
    text = rng.choice(TEXTS) + (f" {rng.random()}" if rng.random() < 0.5 else "")
    stream = {"stream": rng.random() < 0.5}
    long = {"ignore_eos": True, "max_tokens": rng.randrange(1, 60)}
    return rng.choice(
        [
            (CHAT, {"messages": said(text)} | stream),
            (CHAT, {"messages": said(text), "n": 3} | long | stream),
            ("/v1/completions", {"prompt": [text, text + "!", "x"]} | long | stream),
            ("/v1/completions", {"prompt": text, "echo": True, "logprobs": 2}),
            ("/v1/responses", {"input": text} | stream),
            ("/v1/messages", {"messages": said(text), "max_tokens": 40} | stream),
            ("/v1/cache/prewarm", {"prompt": text}),
            ("/v1/cache/pin", {"prompt": text, "ttl": 0.05}),
            ("/v1/cache/explain", {"prompt": text}),
            ("/v1/cache/flush", {"prompt": text}),
        ]
    )


async def _visit(port, rng):
    """Ask once, and leave at some time; whether it stayed to the end."""
    path, body = _asked(rng)
    request = request_of(path, body, Connection="close")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stays = False
    try:
        match rng.randrange(6):
            case 0:  # in the middle of its request
                writer.write(request[: rng.randrange(len(request))])
                await writer.drain()
            case 1:  # right behind it
                writer.write(request)
                await writer.drain()
            case 2:  # after a while
                writer.write(request)
                await asyncio.sleep(rng.random() * 0.1)
            case 3:  # in the middle of the answer
                writer.write(request)
                await reader.read(rng.randrange(1, 500))
            case _:
                writer.write(request)
                _check(path, body, await reader.read())
                stays = True
    finally:
        if rng.random() < 0.5:
            writer.transport.abort()  # a reset
        else:
            writer.close()
    return stays


def _check(path, body, answer):
    """Others that come and go change nothing in an answer."""
    assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
    if path == CHAT and "n" not in body:
        if body["stream"]:
            assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        else:
            assert f'"content":"{SAYING}"'.encode() in answer


async def _storm(port, visits):
    """How many stayed to the end."""
    rng = random.Random(11)
    to_come = iter(range(visits))

    async def visitor():
        return [await _visit(port, rng) for _ in to_come]

    visitors = await asyncio.gather(*(visitor() for _ in range(AT_ONCE)))
    return sum(map(sum, visitors))


def _open_files():
    """How many this process has; none where the system does not tell."""
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.exists() else 0


@pytest.mark.parametrize("visits", [800, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_is_left_of_requests_that_were_left(live, visits, caplog):
    # Counting all pages after every event takes most of the time.
    server = live(kv_memory="2048 pages", check=visits < 1000)
    asyncio.run(_storm(server.port, AT_ONCE))  # threads and event loops have come
    wait_until(lambda: server.is_idle and not server.connections)
    files = _open_files()
    stayed = asyncio.run(_storm(server.port, visits))
    assert visits / 5 < stayed < visits / 2
    wait_until(lambda: server.is_idle and not server.connections)
    wait_until(lambda: server.hw.stats().holds == 0)
    assert _open_files() <= files  # fewer, when something of another test has ended meanwhile
    server.forget()
    pages = server.hw.stats().pages
    assert pages.free == pages.total
    assert server.http().post(CHAT, json={"messages": said()}).is_success
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
