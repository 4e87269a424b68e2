"""The command line as its users meet it: exit statuses, one sentence for a mistake, no torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headwater import Headwater
from headwater.cli import main
from headwater.cli.command import Command
from headwater.cli.commands import COMMANDS
from headwater.cli.contract import EXIT_STATUS
from headwater.identity.document import load
from tests.engine.folders import make_folder
from tests.engine.tiny import make_model

pytestmark = pytest.mark.usefixtures("home")


def leaves(commands: tuple[Command, ...], path=()):
    for command in commands:
        yield from leaves(command.commands, (*path, command.name))
        if not command.commands:
            yield (*path, command.name)


@pytest.mark.parametrize("words", list(leaves(COMMANDS)), ids=" ".join)
def test_every_command_has_help(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: headwater {' '.join(words)}")


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("headwater ")


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["contract", "compare", "a"], ["model", "show", "--what"]],
)
def test_a_wrong_word_costs_one_sentence(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("headwater: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["contract"]])
def test_a_command_that_is_left_out_shows_which_there_are(words, capsys):
    assert main(words) == 2, "a script that meant one must not go on"
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: {' '.join(['headwater', *words])} ")
    below = next((each.commands for each in COMMANDS if [each.name] == words), COMMANDS)
    for command in below:
        assert f"    {command.name} " in shown


def test_a_model_that_is_not_there_costs_one_sentence(capsys):
    assert main(["model", "show", "nowhere"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("headwater: No model lies at nowhere;")
    assert said.count("\n") == 1


def test_model_show(home, capsys):
    folder = make_folder(home / "mine")
    assert main(["model", "show", str(folder)]) == 0
    assert "~/mine" in capsys.readouterr().out
    assert main(["model", "show", str(folder), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["path"], row["weight_bytes"]) == ("mine", str(folder), 7)


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_contract_show_prints_what_can_be_read_again(home, capsys, words):
    assert main(["contract", "show", str(make_folder(home / "mine")), *words]) == 0
    assert load(capsys.readouterr().out.encode()).meaning.layers == 2


@pytest.fixture
def compared(home, capsys):
    """Exit status and output of comparing a stored contract with a model that changed since."""

    def run(edit=lambda document: None, words=(), **changes):
        folder = make_folder(home / "mine")
        main(["contract", "show", str(folder)])
        document = json.loads(capsys.readouterr().out)
        edit(document)
        (home / "stored.json").write_text(json.dumps(document))
        make_folder(folder, **changes)
        status = main(["contract", "compare", str(home / "stored.json"), str(folder), *words])
        return status, capsys.readouterr().out

    return run


def test_the_same_model_compares_as_same(compared):
    status, said = compared()
    assert status == 0
    assert said.startswith("same: ")


def test_another_form_is_convertible(compared):
    status, said = compared(lambda document: document["form"].update(page_size=32))
    assert status == 1
    assert said.splitlines()[0].endswith("after: repage.")
    assert "form.page_size" in said


def test_another_meaning_is_refused_with_both_values(compared):
    status, said = compared(rope_theta=500.0)
    assert status == 3
    assert said.splitlines()[1:] == [
        "  meaning.position_encoding.rope_theta",
        "    A  10000.0",
        "    B  500.0",
    ]


def test_an_unknown_field_is_refused_by_name(compared):
    status, said = compared(lambda document: document["meaning"].update(window=1))
    assert status == 3
    assert "meaning.window (unknown)" in said


def test_a_comparison_in_json(compared):
    status, said = compared(words=["--json"], num_hidden_layers=3)
    found = json.loads(said)
    assert (status, found["verdict"]) == (3, "refused")
    assert found["differences"] == [
        {"field": "meaning.layers", "a": "2", "b": "3", "why": "differs"}
    ]


def test_a_mistake_is_no_verdict(home, capsys):
    """Scripts branch on the exit status: what was not compared must not look refused."""
    folder = str(make_folder(home / "mine"))
    assert main(["contract", "compare", folder, "nowhere"]) not in EXIT_STATUS.values()
    assert "nowhere" in capsys.readouterr().err


def shown(capsys, *words):
    assert main(["contract", "show", *words]) == 0
    return load(capsys.readouterr().out.encode())


def test_a_contract_is_shown_as_an_engine_here_would_have_it(home, capsys):
    folder = make_model(home / "tiny")
    with Headwater(folder, kv_memory="8 pages", page=32) as hw:
        own = hw._engine._machine._state.namespace_of.contract
    assert shown(capsys, str(folder), "--page", "32") == own


def test_a_contract_is_shown_for_another_engine_when_asked(home, capsys):
    found = shown(capsys, str(make_folder(home / "mine")), "--dtype", "float16", "--page", "8")
    assert (found.meaning.kv_dtype, found.meaning.numerics) == ("float16", "float16")
    assert found.form.page_size == 8


def test_a_comparison_is_of_engines_as_asked(compared):
    assert compared(words=["--page", "8"])[0] == 1
    status, said = compared(words=["--dtype", "float16"])
    assert status == 3
    assert "meaning.kv_dtype" in said


def test_contracts_need_no_engine_when_its_number_format_is_named(home):
    """A laptop without torch can say whether KV of one model may be used under another."""
    folder = make_folder(home / "mine")
    code = "import sys; sys.modules['torch'] = None; from headwater.cli import main; "
    for words, status in ((["--dtype", "float16"], 0), ([], 2)):
        asked = ["contract", "compare", str(folder), str(folder), *words]
        run = code + f"sys.exit(main({asked!r}))"
        done = subprocess.run(
            [sys.executable, "-c", run], capture_output=True, text=True, check=False
        )
        assert done.returncode == status
        assert ("name one" in done.stderr) == (status == 2)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", ["0", "-1", "x"])
def test_a_page_that_is_none_costs_one_sentence(capsys, page):
    with pytest.raises(SystemExit) as stop:
        main(["contract", "show", "--page", page])
    assert stop.value.code == 2
    assert "invalid number value" in capsys.readouterr().err


def test_model_show_fetches_and_converts_nothing(home, capsys, monkeypatch):
    def converted(*_):
        raise AssertionError("something was made ready")

    monkeypatch.setattr("headwater.engine.sources.resolve.converted", converted)
    (home / "model.gguf").write_bytes(b"GGUF")
    for words in ([], [str(home / "model.gguf")]):
        assert main(["model", "show", *words]) == 2
        assert "`headwater model fetch` makes it so" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), ("[]", "not a JSON object")]
)
def test_a_contract_that_is_none_costs_one_sentence(home, capsys, content, said):
    if content:
        (home / "bad.json").write_text(content)
    assert main(["contract", "compare", str(home / "bad.json"), str(home / "bad.json")]) == 2
    assert said in capsys.readouterr().err


def test_the_schema_is_a_json_schema(capsys):
    assert main(["contract", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    meaning = schema["$defs"]["KVMeaning"]
    assert meaning["additionalProperties"] is False
    assert set(meaning["required"]) == set(meaning["properties"])


def test_bench_runs_the_repository_s_benchmarks_from_anywhere(tmp_path):
    def bench(*words):
        line = [sys.executable, "-m", "headwater", "bench", *words]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)

    (tmp_path / "bench.py").write_text("raise SystemExit('another bench')")
    assert bench().stdout.startswith("usage: python -m bench")
    wrong = bench("nonsense", "--json", "x.json")
    assert wrong.returncode == 2
    assert "invalid choice: 'nonsense'" in wrong.stderr


def test_bench_without_a_repository_costs_one_sentence(capsys, monkeypatch, tmp_path):
    elsewhere = tmp_path / "site-packages" / "headwater" / "__init__.py"
    monkeypatch.setattr("headwater.__file__", str(elsewhere))
    assert main(["bench", "index"]) == 2
    assert "Benchmarks come with the repository" in capsys.readouterr().err


def test_a_reader_that_stops_early_is_no_error(home):
    folder = make_folder(home / "mine")
    shell = f"{sys.executable} -m headwater contract show {folder} | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_help_needs_no_torch():
    code = "import sys, headwater.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
