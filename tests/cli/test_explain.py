"""`headwater explain`: what a server would reuse, in words."""

from __future__ import annotations

import io
import json

import pytest

from headwater.cli import main
from tests.server.live import ALICE, BOB, said


@pytest.fixture
def explain(capsys):
    def run(*words):
        status = main(["explain", *words])
        return status, *capsys.readouterr()

    return run


def ask(server, messages, key=None, **more):
    body = {"messages": messages, "max_tokens": 1} | more
    answer = server.http(key).post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return answer.json()["usage"]["prompt_tokens"]


def test_a_prompt_is_explained_before_and_after_it_is_asked(server, explain):
    status, out, _ = explain(server.url, "Hello")
    assert status == 0
    assert out.startswith("0 of ")
    assert "Nothing that begins like it was cached.\nIt is cached when it has been asked" in out
    tokens = ask(server, said("Hello"))
    _, out, _ = explain(server.url, "Hello")
    assert out.startswith(f"{tokens - 1} of {tokens} prompt tokens are cached (")
    assert out.endswith(
        "%); 1 would be computed.\nAll of it was cached; its last token runs again "
        "to draw the next.\n"
    )


def test_where_prompts_part_is_shown_with_the_text(server, explain):
    ask(server, said("the fox"))
    _, out, _ = explain(server.url, "the dog")
    assert "from there on other tokens were. It goes on with " in out
    assert "Put first what stays the same" in out
    ask(server, said("the fox jumps"))
    _, out, _ = explain(server.url, "--raw", "<|start|>user\nthe fox jumps<|end|>\n")
    assert " would be computed." in out


def test_explaining_computes_nothing(server, explain):
    steps = server.hw.progress.steps
    explain(server.url, "Hello")
    assert server.hw.progress.steps == steps


def test_messages_come_from_a_file(server, explain, tmp_path, monkeypatch):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    tokens = ask(server, said("Hello"), tools=tools)
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"model": "any", "messages": said("Hello"), "tools": tools}))
    _, out, _ = explain(server.url, "--messages", str(file), "--json")
    found = json.loads(out)
    assert (found["prompt_tokens"], found["cached_tokens"]) == (tokens, tokens - 1)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(said()).encode())))
    _, out, _ = explain(server.url, "--messages", "-", "--json")
    assert json.loads(out)["why"]["kind"] == "diverged"


def test_a_prompt_comes_from_the_standard_input(server, explain, monkeypatch):
    ask(server, said("Hello"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hello\n")))
    _, out, _ = explain(server.url, "-", "--json")
    assert json.loads(out)["why"]["kind"] == "all_reused"


def test_a_salt_and_a_key_say_whose_cache_is_looked_at(server, keyed, explain):
    tokens = ask(server, said("Hello"), headwater={"salt": "mine"})
    for words, cached in (([], 0), (["--salt", "mine"], tokens - 1)):
        _, out, _ = explain(server.url, "Hello", "--json", *words)
        assert json.loads(out)["cached_tokens"] == cached
    keyed.forget()
    ask(keyed, said("Hello"), ALICE)
    for key, cached in ((BOB, 0), (ALICE, tokens - 1)):
        _, out, _ = explain(keyed.url, "Hello", "--json", "--key", key)
        assert json.loads(out)["cached_tokens"] == cached


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Give a prompt"),
        (["http://127.0.0.1:1"], "Give a prompt, behind the URL"),
        (["http://127.0.0.1:1", "two", "words"], "stands in quotes"),
        (["Hello", "--messages", "-", "--raw"], "Give either"),
        (["--messages", "/nope"], "/nope cannot be read: No such file or directory."),
        (["no server", "Hello"], "'no server' is no server's address"),
    ],
)
def test_a_mistake_costs_one_sentence(words, said, explain):
    status, _, err = explain(*words)
    assert status == 2
    assert err.startswith("headwater: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is no JSON"),
        (b"3", "holds neither a list of messages"),
        (b'{"messages": 3}', "holds neither"),
        (b"\xff", "is no text in UTF-8"),
    ],
)
def test_a_file_that_holds_no_messages_costs_one_sentence(content, said, explain, tmp_path):
    file = tmp_path / "chat.json"
    file.write_bytes(content)
    status, _, err = explain("--messages", str(file))
    assert status == 2
    assert said in err
