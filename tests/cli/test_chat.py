"""`headwater chat`, piped and at a keyboard."""

from __future__ import annotations

import re
import signal

import pytest

from headwater.cli import main
from tests.cli.conftest import SPELLED_AS_READ
from tests.cli.typed import PATIENCE, Lines, Terminal
from tests.server.live import ALICE, wait_until

SUMMARY = re.compile(
    r"\[(\d+) prompt tokens, (\d+) of them cached; first token after \d+\.\d\d s; (\d+) generated\]"
)


@pytest.fixture
def chat(monkeypatch, capsys):
    """Chats by lines; the exit status and what was printed."""

    def run(text, *words):
        monkeypatch.setattr("sys.stdin", Lines(text))
        status = main(["chat", *words])
        return status, *capsys.readouterr()

    return run


def test_lines_are_answered_one_after_the_other(server, chat):
    status, out, err = chat("Hello\n\nAnd now?\n", server.url)
    assert status == 0
    assert out == f"{SPELLED_AS_READ}\n" * 2
    first, second = ([int(word) for word in found] for found in SUMMARY.findall(err))
    assert first[1] == 0
    assert second[0] > first[0]
    assert second[1] == first[0] + first[2] - 1, "all of turn 1 that has KV"


def test_a_reset_begins_anew_and_quit_ends(server, chat):
    _, out, err = chat("Hello\n/reset\nHello\n/quit\nnever asked\n", server.url)
    first, second = SUMMARY.findall(err)
    assert first[0] == second[0], "the prompt is that of the first turn again"
    assert int(second[1]) == int(second[0]) - 1
    assert len(out.splitlines()) == 2


def test_why_says_where_reuse_ended(server, chat):
    _, _, err = chat("/why\nHello\n/why\n/what\n", server.url)
    assert err.splitlines()[0] == "Nothing was asked yet."
    assert "Nothing that begins like it was cached." in err
    assert "/reset  begin a new conversation" in err


def test_an_answer_is_as_long_as_asked_and_a_system_prompt_counts(server, chat):
    _, out, err = chat("Hello\n", server.url, "--max-tokens", "4")
    assert out == SPELLED_AS_READ[0] + "\n"
    _, _, longer = chat("Hello\n", server.url, "--system", "Be brief.")
    assert int(SUMMARY.findall(longer)[0][0]) > int(SUMMARY.findall(err)[0][0])


def test_a_key_comes_by_option_or_from_the_environment(keyed, chat, monkeypatch):
    assert chat("Hello\n", keyed.url)[0] == 2
    assert chat("Hello\n", keyed.url, "--key", ALICE)[0] == 0
    monkeypatch.setenv("HEADWATER_API_KEY", ALICE)
    assert chat("Hello\n", keyed.url)[0] == 0


def test_what_goes_wrong_in_a_pipe_ends_it(server, chat):
    status, _, err = chat("x" * 20_000 + "\nHello\n", server.url)
    assert status == 2
    assert err.startswith("headwater: The prompt has ")
    assert err.count("\n") == 1


def test_at_a_keyboard_a_mistake_costs_one_turn(server):
    with Terminal("chat", server.url) as terminal:
        terminal.see(r"/help says what can be typed")
        terminal.type("/reset\n")
        terminal.see("A new conversation")
        terminal.type("Hello\n")
        terminal.see(re.escape(SPELLED_AS_READ))
        terminal.see(r"cached; first token")
        server.service.desk.is_closed = True
        try:
            terminal.type("Hello\n")
            terminal.see("headwater: The server is ending")
        finally:
            server.service.desk.is_closed = False
        terminal.type("/quit\n")
        assert terminal.process.wait(PATIENCE) == 0


def test_an_interrupted_answer_is_let_go_and_the_chat_goes_on(live):
    server = live()
    server.runner.delay = 0.3
    with Terminal("chat", server.url) as terminal:
        terminal.see("> ")
        terminal.type("Hello\n")
        terminal.see(SPELLED_AS_READ[0])
        terminal.process.send_signal(signal.SIGINT)
        terminal.see(r"\[interrupted; first token after")
        wait_until(lambda: server.is_idle)
        server.runner.delay = 0
        terminal.type("Go on\n")
        terminal.see(r"cached; first token")
        terminal.see("> ")  # an end that is typed before anybody reads is lost
        terminal.type("\x04")  # Ctrl-D
        assert terminal.process.wait(PATIENCE) == 0


def test_escape_sequences_of_a_model_do_not_reach_the_terminal(make_loaded, live):
    saying = "a\x1b[31mz."
    server = live(make_loaded("painter", saying))
    with Terminal("chat", server.url) as terminal:
        terminal.see("> ")
        terminal.type("Hello\n")
        terminal.see(re.escape("a[31mz."))
