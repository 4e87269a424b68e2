"""The commands that run a model, with a tiny one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from rich.console import Console

from headwater.cli import main
from headwater.demo import acts, pair
from headwater.demo.pair import Difference, Row
from headwater.demo.screen import all_agree, show_rows
from headwater.engine import api
from headwater.engine.results import Choice
from headwater.engine.sampling import TokenLogprobs
from tests.engine.tiny import make_model

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def folder(home):
    return str(make_model(home / "tiny"))


def test_generate_streams_and_sums_up(folder, capsys):
    words = ["generate", "--model", folder, "--raw", "the fox", "--max-tokens", "5"]
    assert main([*words, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out == expected["choices"][0]["text"] + "\n"
    usage = expected["usage"]
    counts = f"{usage['prompt_tokens']} prompt tokens, {usage['completion_tokens']} generated, "
    summary = said.err.splitlines()[-1]
    assert summary.startswith(counts)
    assert re.search(r"first after \d+\.\d\d s, all after \d+\.\d\d s$", summary)


def test_generate_as_json(folder, capsys):
    words = ["generate", "--model", folder, "--raw", "the fox", "--max-tokens", "5", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usage"]["prompt_tokens"] == found["cache"]["sources"]["computed"]
    assert found["choices"][0]["finish_reason"] in ("stop", "length")


def answers(capsys, folder, *words):
    """The choices of a run."""
    asked = ["generate", "--model", folder, "--raw", "--max-tokens", "6", "--json", *words]
    assert main(asked) == 0
    return json.loads(capsys.readouterr().out)["choices"]


def test_generate_takes_a_prompt_from_the_standard_input(folder, capsys, monkeypatch):
    typed = answers(capsys, folder, "the fox")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"the fox\n")))
    assert answers(capsys, folder, "-") == typed


def test_generate_stops_before_a_text(folder, capsys):
    whole = answers(capsys, folder, "the fox")[0]["text"]
    first, second = whole[1], whole[2]
    stopped = answers(capsys, folder, "the fox", "--stop", "never said", "--stop", second)[0]
    assert stopped["text"] == whole[: whole.index(second)]
    assert first in stopped["text"]
    assert stopped["finish_reason"] == "stop"


def test_generate_draws_several_answers(folder, capsys):
    drawn = ("the fox", "-n", "3", "--temperature", "1", "--seed", "4")
    found = [choice["text"] for choice in answers(capsys, folder, *drawn)]
    assert len(set(found)) == 3
    likeliest = answers(capsys, folder, *drawn, "--top-p", "1e-6")
    assert len({choice["text"] for choice in likeliest}) == 1
    words = ["generate", "--model", folder, "--raw", "--max-tokens", "6", *drawn]
    assert main(words) == 0
    shown = capsys.readouterr().out
    for at, text in enumerate(found):
        assert f"--- {at + 1} of 3\n{text}\n" in shown


def test_generate_computes_in_the_format_and_the_room_it_is_given(folder, capsys, monkeypatch):
    made = []

    class Watched(api.Headwater):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            made.append((str(self.loaded.model.facts.dtype), self.recipe.pages))

    monkeypatch.setattr(api, "Headwater", Watched)
    answers(capsys, folder, "the fox", "--dtype", "float16", "--kv-memory", "9 pages")
    assert made == [("torch.float16", 9)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-tokens", "0"], "invalid number value: '0'"),
        (["-n", "0"], "invalid number value: '0'"),
        (["--temperature", "-1"], "temperature must be 0 or more"),
        (["--temperature", "nan"], "temperature must be 0 or more"),
        (["--top-p", "0"], "top_p must lie in (0, 1]"),
        (["--stop", ""], "A stop string is empty"),
        (["--kv-memory", "2M"], "'2M' is no size"),
        (["--dtype", "int3"], "invalid choice: 'int3'"),
        ([word for at in range(17) for word in ("--stop", str(at))], "At most 16 stop strings"),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, list) else "",
)
def test_a_bad_argument_costs_one_sentence_and_no_torch(words, said):
    code = f"""if True:
        import sys
        from headwater.cli import main
        try:
            status = main(["generate", "hello", "--model", "/nowhere", *{words!r}])
        except SystemExit as stop:
            status = stop.code
        sys.exit(status if "torch" not in sys.modules else 99)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("headwater: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bad_request_costs_one_sentence(folder, capsys):
    assert main(["generate", "--model", folder, "x" * 5000]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("headwater: The prompt has ")


def test_the_demonstration_tells_the_truth(folder, home, capsys, monkeypatch):
    monkeypatch.setattr(acts, "document", lambda: "the quick brown fox says hello to the dog")
    path = home / "demo.json"
    assert main(["demo", "--quick", "--model", folder, "--json", str(path)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(path.read_text())
    rows = {row["who"]: row for row in found["rows"]}
    assert list(rows) == ["turn 1", "turn 2", "reader 1", "reader 2", "another domain", "n=2"]
    assert all(row["difference"] is None for row in rows.values())
    assert "6 of 6 answers are the same" in shown
    assert rows["turn 1"]["cached"] == rows["another domain"]["cached"] == 0
    assert rows["turn 2"]["cached"] >= rows["turn 1"]["prompt"]
    assert rows["reader 2"]["cached"] > rows["reader 2"]["prompt"] // 2
    tokens = found["with_cache"]["tokens"]
    assert tokens["prompt"] == tokens["reused"] + tokens["computed"]
    assert tokens["prompt"] == sum(row["prompt"] for row in found["rows"])
    assert found["without"]["tokens"]["reused"] == 0


def test_the_demonstration_shows_a_difference_when_there_is_one(folder, home, capsys, monkeypatch):
    """One engine's sampler is made to slip: the table says where, and so does the exit status."""
    ask = pair._ask

    def slip(engine, questions, asked):
        results = ask(engine, questions, asked)
        if engine.recipe.cache == "prefix":
            results[0].choices[0].tokens[1] ^= 1
        return results

    monkeypatch.setattr(acts, "document", lambda: "the quick brown fox")
    monkeypatch.setattr(pair, "_ask", slip)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["demo", "--quick", "--model", folder]) == 1
    shown = capsys.readouterr().out
    assert "no, from token 1" in " ".join(shown.split())
    assert "6 of 6" not in shown


def choice(*tokens, gap=1.0):
    top = [TokenLogprobs(-1.0, [(7, -1.0), (8, -1.0 - gap)]) for _ in tokens]
    return Choice(0, "", list(tokens), top, "length")


@pytest.mark.parametrize(
    ("ours", "plain", "greedy", "found"),
    [
        (choice(1, 2), choice(1, 2), True, None),
        (choice(1, 2), choice(1, 3, gap=0.5), True, Difference(0, 1, 0.5)),
        (choice(1, 2), choice(1, 3, gap=0.5), False, Difference(0, 1, None)),
        (choice(1), choice(1, 3), True, Difference(0, 1, None)),
        (choice(1, 2), choice(1), True, Difference(0, 1, None)),
    ],
)
def test_where_answers_part_and_how_close_it_was(ours, plain, greedy, found):
    assert pair._difference([ours], [plain], greedy=greedy) == found


@pytest.mark.parametrize(
    ("gap", "agree"), [(1e-4, True), (1e-2, False), (None, False), ("same", True)]
)
def test_only_a_tie_may_differ(gap, agree):
    difference = None if gap == "same" else Difference(choice=0, token=3, gap=gap)
    assert all_agree([row(difference)]) is agree


def row(difference, at=0):
    return Row(
        act=1,
        who=f"turn {at + 1}",
        prompt=100,
        cached=90 * at,
        computed=100 - 90 * at,
        generated=8,
        with_cache=1.0,
        without=2.0,
        why="[not markup]",
        answer="",
        difference=difference,
    )


def test_on_a_terminal_rows_appear_as_they_come():
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=140)

    def rows():
        for at in range(2):
            assert ("turn 1" in written.getvalue()) == (at == 1), "shown before the next is asked"
            yield row(Difference(choice=0, token=3, gap=0.00012), at)

    assert len(show_rows(console, rows())) == 2
    shown = written.getvalue()
    assert "2.0 ×" in shown
    assert "not markup" in shown
    assert "no, from token 3 (two candidates 0.0001 apart, a tie)" in shown
