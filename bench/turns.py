"""Turns of agents' conversations, as the traces have them: the whole prompt of every call."""

from __future__ import annotations

import json
from pathlib import Path

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
"""Where the traces lie beside a checkout: `agents/taubench/*.jsonl`."""

SHORTEST = 200
"""Characters of a prompt; shorter ones are a greeting."""


def chat_turns(count: int, data: Path = DATA) -> list[str]:
    """So many prompts in the order of their sessions' calls, sessions interleaved by time."""
    calls: list[tuple[float, str]] = []
    for file in sorted((data / "agents" / "taubench").glob("*.jsonl")):
        session = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        taken = sorted((each["timestamp"], each["input"]) for each in session)
        begin = taken[0][0] if taken else 0
        # As if all sessions began together: each call at its distance from its session's first.
        calls += [(at - begin, text) for at, text in taken if len(text) >= SHORTEST]
    calls.sort()
    return [text for _, text in calls[:count]]
