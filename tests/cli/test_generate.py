"""The commands that run a model, with a tiny one."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from headwater.cli import main
from headwater.demo import acts, pair
from headwater.demo.pair import Difference, Row
from headwater.demo.screen import show_rows
from tests.engine.tiny import make_model

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def folder(home):
    return str(make_model(home / "tiny"))


def test_generate_streams_and_sums_up(folder, capsys):
    assert main(["generate", "--model", folder, "hello", "--max-tokens", "5"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("\n")
    assert "5 generated" in said.err or "generated, first after" in said.err


def test_generate_as_json(folder, capsys):
    words = ["generate", "--model", folder, "--raw", "the fox", "--max-tokens", "5", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usage"]["prompt_tokens"] == found["cache"]["sources"]["computed"]
    assert found["choices"][0]["finish_reason"] in ("stop", "length")


def test_a_bad_request_costs_one_sentence(folder, capsys):
    assert main(["generate", "--model", folder, "hello", "--max-tokens", "0"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("headwater: max_tokens")


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
    """One engine's sampler is made to slip once: the table says where, and by how much."""
    ask = pair._ask

    def slip(engine, questions, asked):
        results = ask(engine, questions, asked)
        if engine.recipe.cache == "prefix":
            results[0].choices[0].tokens[1] ^= 1
        return results

    monkeypatch.setattr(acts, "document", lambda: "the quick brown fox")
    monkeypatch.setattr(pair, "_ask", slip)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["demo", "--quick", "--model", folder]) == 0
    shown = capsys.readouterr().out
    assert "no, from token 1" in " ".join(shown.split())
    assert "6 of 6" not in shown


def test_on_a_terminal_rows_appear_as_they_come():
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=120)

    def rows():
        for at, who in enumerate(["turn 1", "turn 2"]):
            assert ("turn 1" in written.getvalue()) == (at == 1), "shown before the next is asked"
            yield Row(
                act=1,
                who=who,
                prompt=100,
                cached=90 * at,
                computed=100 - 90 * at,
                generated=8,
                with_cache=1.0,
                without=2.0,
                why="[not markup]",
                answer="",
                difference=Difference(choice=0, token=3, gap=0.00012),
            )

    assert len(show_rows(console, rows())) == 2
    shown = written.getvalue()
    assert "2.0 ×" in shown
    assert "not markup" in shown
    assert "no, from token 3 (two candidates 0.0001 apart)" in shown
