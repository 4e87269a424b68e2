from __future__ import annotations

import io

import msgspec
from rich.console import Console

from bench.__main__ import SUBJECTS, _unmeasured
from bench.report import Row, median_ratio, show, to_json
from bench.targets import TARGETS


def test_every_target_belongs_to_a_module():
    assert {name.partition(".")[0] for name in TARGETS} == set(SUBJECTS)


def test_a_ratio_is_taken_within_rounds():
    # Both sides are three times as slow in the second round: that says nothing about either.
    assert median_ratio([1.0, 3.0, 1.0], [2.0, 6.0, 2.0]) == 0.5


def test_a_target_without_a_row_is_reported():
    rows = _unmeasured("schedule", [])
    assert [(row.id, row.value) for row in rows] == [("schedule.step_ms", None)]


def test_the_document_has_the_machine_and_keeps_a_missing_value():
    document = msgspec.json.decode(to_json([Row("index.x", None, "ms", "vLLM", "not built")], 2))
    assert document["rows"] == [
        {"id": "index.x", "value": None, "unit": "ms", "against": "vLLM", "how": "not built"}
    ]
    assert {"cpu", "cores", "flags", "memory_gib", "python", "torch", "threads", "date"} <= set(
        document["machine"]
    )


def test_the_table_says_which_targets_were_met():
    rows = [
        Row("index.match_us", 90.0, "µs", "", ""),
        Row("index.insert_ms", 9.0, "ms", "", ""),
        Row("index.growth", None, "x time", "", ""),
        Row("index.node_bytes", 700.0, "bytes", "", ""),
    ]
    out = io.StringIO()
    show(rows, Console(file=out, width=200))
    lines = {line.split()[1]: line for line in out.getvalue().splitlines() if "│" in line}
    assert "met" in lines["index.match_us"] and "≤ 200" in lines["index.match_us"]
    assert "missed" in lines["index.insert_ms"]
    assert "not measured" in lines["index.growth"]
    assert "met" not in lines["index.node_bytes"]
