"""Output that cannot be written, and what else a system may deny: one sentence, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli import main
from tests.engine.folders import make_folder
from tests.engine.tiny import make_model

_MAIN = "from headwater.cli import main; raise SystemExit(main())"

pytestmark = pytest.mark.usefixtures("home")


def headwater(redirected, *words, **variables):
    """Exit status and complaints of a command whose streams a shell redirects."""
    line = ["sh", "-c", f'"$0" -c "$@" {redirected}', sys.executable, _MAIN]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        done = subprocess.run([*line, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def assert_one_sentence(done, said):
    status, complaint = done
    assert status == 2
    assert complaint.startswith("headwater: ")
    assert complaint.count("\n") == 1
    assert said in complaint


def test_a_closed_output_costs_one_sentence():
    assert_one_sentence(headwater(">&-", "contract", "schema"), "no standard output")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_costs_one_sentence():
    assert_one_sentence(
        headwater(">/dev/full", "contract", "schema"), "cannot be written: No space"
    )
    assert headwater(">/dev/full 2>/dev/full", "contract", "schema") == (2, "")


def test_an_output_that_nobody_reads_on_is_left_quietly():
    assert headwater("| true", "contract", "schema")[1] == ""


def unread(code):
    """The exit status, and the complaints, of Python code whose output nobody reads."""
    line = 'sleep 0.2; "$0" -uc "$1"; echo $? >&2'  # when it writes, the reader has gone
    shell = ["bash", "-c", f"({line}) | true", sys.executable, code]
    *complaints, status = subprocess.run(
        shell, capture_output=True, text=True, check=False
    ).stderr.splitlines()
    return int(status), complaints


def test_what_a_command_found_out_holds_when_nobody_reads_it(home):
    """A verdict must not become another one because of `| head`."""
    a, b = make_folder(home / "a"), make_folder(home / "b", num_hidden_layers=3)
    words = ["contract", "compare", str(a), str(b)]
    assert unread(f"from headwater.cli import main; raise SystemExit(main({words!r}))") == (3, [])


def test_a_doctor_whom_nobody_hears_out_has_found_what_it_has():
    words = ["doctor", "http://127.0.0.1:9"]
    assert unread(f"from headwater.cli import main; raise SystemExit(main({words!r}))") == (1, [])


def test_the_demo_measures_on_when_nobody_looks():
    code = """if True:
        from headwater.cli.demo import _Screen
        screen = _Screen()
        screen.print("seen?")
        screen.print("seen?")
        raise SystemExit(7)"""
    assert unread(code) == (7, [])


def test_an_answer_that_nobody_reads_is_not_made_to_the_end(home):
    folder = str(make_model(home / "tiny"))
    words = ["generate", "--model", folder, "--raw", "the fox", "--max-tokens", "200"]
    status, complaints = unread(
        f"from headwater.cli import main; raise SystemExit(main({words!r}))"
    )
    assert status == 0
    assert not any("generated" in line for line in complaints), "it was let go"


def test_an_encoding_without_the_characters_costs_one_sentence(home):
    folder = make_model(home / "größe")
    done = headwater("", "model", "show", str(folder), PYTHONIOENCODING="ascii")
    assert_one_sentence(done, "cannot be written in ascii")


@pytest.mark.parametrize("deep", [600, 100_000])
def test_json_nested_too_deeply_is_no_contract(home, capsys, deep):
    file = home / "deep.json"
    file.write_text('{"a":' * deep + "1" + "}" * deep)
    assert main(["contract", "compare", str(file), str(file)]) == 2
    assert "nested more than 32 levels deep" in capsys.readouterr().err


def test_a_state_folder_that_cannot_be_made_costs_one_sentence(home, capsys, monkeypatch):
    folder = str(make_model(home / "mine"))
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    assert main(["generate", "hello", "--raw", "--model", folder]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "headwater: The secret /dev/null/headwater/secret cannot be made: Not a directory."
    )


def test_the_demo_sees_at_once_that_its_file_cannot_be_written(capsys):
    assert main(["demo", "--json", "/nope/x.json", "--model", "/nowhere"]) == 2
    assert "/nope/x.json cannot be written: No such file" in capsys.readouterr().err
