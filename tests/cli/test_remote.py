"""How commands talk to a server: addresses as people write them, streams, and what goes wrong."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from headwater.cli import main
from headwater.cli.remote import Remote, ServerTrouble, base_of, events_of, looks_like_url
from headwater.cli.replies import Models, Piece
from headwater.errors import BadSetting
from tests.cli.meddler import Says
from tests.cli.typed import Lines
from tests.server.live import ALICE


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("localhost", "http://localhost"),
        ("https://llm.example.org/v1", "https://llm.example.org"),
        ("https://llm.example.org/models/v1/", "https://llm.example.org/models"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_taken_as_people_write_it(written, meant):
    assert base_of(written) == meant


@pytest.mark.parametrize("written", ["", "ftp://x", "http://", "http://x:0", "http://x:y", "a b"])
def test_what_is_no_address_costs_one_sentence(written):
    with pytest.raises(BadSetting, match="is no server's address; write one as in http"):
        base_of(written)


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("http://x", True),
        ("127.0.0.1:8000", True),
        ("llm.example.org:80/v1", True),
        ("Why?", False),
        ("https://x is down", False),
        ("ratio 3:4", False),
    ],
)
def test_a_prompt_is_no_address(word, is_one):
    assert looks_like_url(word) is is_one


def test_events_are_read_however_their_bytes_are_cut():
    text = 'data: {"a": "line\u2028other\x85"}\n\ndata:[DONE]\n\n'
    whole = text.encode()
    expected = ['{"a": "line\u2028other\x85"}', "[DONE]"]
    for size in range(1, len(whole) + 1):
        chunks = (whole[at : at + size] for at in range(0, len(whole), size))
        assert [data.decode() for data in events_of(chunks)] == expected


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@pytest.mark.parametrize("words", [["chat"], ["explain", "hello"]], ids=" ".join)
def test_a_server_that_is_not_there_costs_one_sentence(words, capsys, monkeypatch):
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr("sys.stdin", Lines("hello\n"))
    assert main([words[0], url, *words[1:]]) == 2
    said = capsys.readouterr().err
    assert said == (
        f"headwater: {url} cannot be reached (Connection refused); is the server running there?\n"
    )


def trouble(url, key=None, patience=60.0):
    with Remote(url, key, patience) as remote, pytest.raises(ServerTrouble) as caught:
        remote.get("/v1/models", Models)
    return caught.value


def test_a_key_that_is_missing_or_wrong_is_explained(keyed):
    for key, said in ((None, "No API key came"), ("not-one-of-theirs", "This API key is unknown.")):
        error = trouble(keyed.url, key)
        assert error.status == 401
        assert str(error).startswith(said)
        assert str(error).endswith("Give the right one with --key or HEADWATER_API_KEY.")
    with Remote(keyed.url, ALICE) as remote:
        assert remote.get("/v1/models", Models).data


def test_a_key_that_no_header_can_carry_is_refused():
    with pytest.raises(BadSetting, match="letters, digits and signs"):
        Remote("localhost", "schlüssel")


def test_a_server_that_is_another_is_named_as_that():
    with Says(502, b"<html>Bad gateway</html>") as other:
        error = trouble(other.url)
    assert str(error) == f"{other.url} answered 502 without saying why; is that Headwater?"
    with Says(301, b"", Location="https://elsewhere") as other:
        assert "answered 301" in str(trouble(other.url))
    with Says(200, b'{"data": 3}') as other:
        assert "does not answer as Headwater does" in str(trouble(other.url))


def test_a_server_that_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert str(trouble(url, patience=0.2)) == f"{url} did not answer in time."


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'data: {"choices": []}\n\n', "broke off"),
        (b'data: {"error": {"message": "The engine has stopped."}}\n\n', "The engine has stopped."),
    ],
)
def test_a_stream_that_does_not_end_well_is_no_answer(sent, said):
    with (
        Says(200, sent) as server,
        Remote(server.url) as remote,
        pytest.raises(ServerTrouble, match=said),
    ):
        list(remote.stream("/v1/chat/completions", {}, Piece))


@pytest.mark.parametrize("missing", ["httpx2", "prometheus_client"])
def test_without_the_server_s_packages_one_sentence_says_what_to_install(missing):
    code = f"""if True:
        import sys
        sys.modules[{missing!r}] = None
        from headwater.cli import main
        sys.exit(main(["doctor"]))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "headwater: The server is not installed; install it with: pip install 'headwater[server]'\n"
    )


def test_a_proxy_does_not_lead_to_this_machine(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with Remote(server.url) as remote:
        assert remote.get("/v1/models", Models).data
