"""The request log: a line a request, from which nobody can read what was asked."""

from __future__ import annotations

import json
import stat

import pytest

from headwater.server.recorder import WIDTH
from tests.server.live import ALICE, BOB, TENANTS, raw, request_of, said, wait_until

CHAT = "/v1/chat/completions"
TEXT = "xylophones jump over the lazy dog and say hello to zebras, quickly and often"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "requests"


@pytest.fixture
def logged(live, log):
    return live(tenants=TENANTS, request_log=str(log))


def _lines(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def _ask(http, message=TEXT, **named):
    body = {"messages": said(message), "max_tokens": 3} | named
    return http.post(CHAT, json=body).json()["usage"]


def test_a_line_says_what_a_request_came_to(logged, log):
    http = logged.http(ALICE)
    usages = [_ask(http), _ask(http)]
    lines = _lines(log)
    assert len(lines) == 2
    for line, usage in zip(lines, usages, strict=True):
        assert line["tenant"] == "alice"
        assert line["outcome"] == "complete"
        assert line["prompt_tokens"] == usage["prompt_tokens"]
        assert line["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]
        assert line["generated_tokens"] == 3
        assert 0 < line["first_token"] <= line["total"]
        assert line["width"] == WIDTH
        assert len(line["chunks"]) == usage["prompt_tokens"] // WIDTH


def test_nothing_that_was_said_stands_in_it(logged, log):
    _ask(logged.http(ALICE))
    _ask(logged.http(ALICE), headwater={"salt": "salty-salt"})
    written = log.read_text()
    [line, _] = _lines(log)
    assert "xylophone" not in written
    assert "salty-salt" not in written
    ids = logged.hw.loaded.tokenizer.encode(TEXT)
    assert not [value for value in line.values() if value == ids]
    assert {type(value) for value in line.values()} == {float, str, int, list}
    assert all(isinstance(name, str) and len(name) == 32 for name in line["chunks"])


def test_only_its_owner_can_read_it(live, log):
    log.touch(mode=0o644)
    live(request_log=str(log))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_equal_prefixes_have_equal_names_within_a_tenant_only(logged, log):
    alice, bob = logged.http(ALICE), logged.http(BOB)
    for http, message, salt in (
        (alice, TEXT, ""),
        (alice, TEXT[:60] + "!" + TEXT[61:], ""),
        (bob, TEXT, ""),
        (alice, TEXT, "x"),
    ):
        _ask(http, message, headwater={"salt": salt})
    [first, like, others, salted] = [line["chunks"] for line in _lines(log)]
    same = sum(one == other for one, other in zip(first, like, strict=False))
    assert 0 < same < len(first)
    assert first[:same] == like[:same]
    assert not set(first[same:]) & set(like[same:])  # a name says all that stands before it
    assert not set(first) & set(others)
    assert not set(first) & set(salted)


def test_a_request_that_was_left_has_a_line_as_well(logged, log):
    logged.runner.delay = 0.05
    body = {"messages": said(), "max_tokens": 1900, "ignore_eos": True, "stream": True}
    connection = raw(logged, request_of(CHAT, body, Authorization=f"Bearer {ALICE}"))
    connection.recv(1)
    connection.close()
    wait_until(lambda: logged.is_idle)
    [line] = _lines(log)
    assert line["outcome"] == "cut off"
    assert 0 < line["generated_tokens"] < 1900


def test_each_prompt_of_a_request_has_a_line(logged, log):
    prompts = {"prompt": [TEXT, TEXT, "x"], "max_tokens": 1}
    assert logged.http(ALICE).post("/v1/completions", json=prompts).status_code == 200
    assert len(_lines(log)) == 3


def test_a_restart_goes_on_in_the_same_file_with_the_same_names(live, log):
    for _ in range(2):
        _ask(live(request_log=str(log)).http())
    [one, other] = _lines(log)
    assert one["chunks"] == other["chunks"]
