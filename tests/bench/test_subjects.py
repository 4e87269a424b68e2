"""The pure subjects measure what they say, on sizes that take no time."""

from __future__ import annotations

import numpy as np

from bench import index, schedule
from bench.options import Options

QUIET = Options(None, None, rounds=3, threads=2, peers=None, say=lambda text: None)


def test_the_index_has_the_nodes_and_the_depth_it_claims():
    rng = np.random.default_rng(0)
    small = index.Index(500)
    prompt = rng.integers(100, 40_000, 160, dtype=np.int32)
    small.insert(prompt)
    for end in range(16, 160, 16):
        small.insert(np.concatenate([prompt[:end], rng.integers(100, 40_000, 16, dtype=np.int32)]))
    assert small.depth(prompt) == 10
    index._fill(small, rng, 300)
    assert small.nodes() in (299, 300)
    assert small.match(prompt) == 160


def test_growth_compares_all_three_verbs(monkeypatch):
    monkeypatch.setattr(index, "SMALL", 100)
    monkeypatch.setattr(index, "LARGE", 400)
    monkeypatch.setattr(index, "REPEATS", 3)
    rows = {row.id: row for row in index._growth(QUIET, np.random.default_rng(0))}
    verbs = [rows[f"index.growth_{verb}"].value for verb in ("match", "insert", "evict")]
    assert rows["index.growth"].value == max(verbs)
    assert 100 < rows["index.node_bytes"].value < 10_000


def test_the_schedule_is_timed_in_a_steady_state(monkeypatch):
    monkeypatch.setattr(schedule, "RUNNING", 8)
    monkeypatch.setattr(schedule, "WAITING", 20)
    monkeypatch.setattr(schedule, "STEPS", 10)
    median, p99 = schedule.run(QUIET)
    assert median.id == "schedule.step_ms"
    assert "8 running, 20 waiting" in median.how
    assert 0 < median.value <= p99.value
