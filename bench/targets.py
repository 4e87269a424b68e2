"""What Headwater promises, in one place. The first word of an id is the module that measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Target:
    """A bound on a measured value. `at most` for times and slow-downs, `at least` for speed-ups."""

    bound: Literal["at most", "at least"]
    limit: float
    unit: str

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.bound == "at most" else value >= self.limit

    def __str__(self) -> str:
        return f"{'≤' if self.bound == 'at most' else '≥'} {self.limit:g}"


def _at_most(limit: float, unit: str) -> Target:
    return Target("at most", limit, unit)


def _at_least(limit: float, unit: str) -> Target:
    return Target("at least", limit, unit)


TARGETS = {
    "serving.hit_vs_vllm": _at_most(0.5, "x time"),
    "serving.hit_vs_bare": _at_most(1.15, "x time"),
    "serving.cold_vs_vllm": _at_least(2.0, "x faster"),
    "serving.decode1_vs_vllm": _at_least(1.0, "x tokens/s"),
    "serving.decode8_vs_vllm": _at_least(1.3, "x tokens/s"),
    "serving.decode32_vs_vllm": _at_least(2.0, "x tokens/s"),
    "serving.decode_mixed": _at_least(0.7, "x tokens/s"),
    "index.match_us": _at_most(200.0, "µs"),
    "index.match_vs_vllm": _at_least(20.0, "x faster"),
    "index.insert_ms": _at_most(2.0, "ms"),
    "index.growth": _at_most(2.0, "x time"),
    "schedule.step_ms": _at_most(1.0, "ms"),
    "server.added_p50_ms": _at_most(3.0, "ms"),
    "server.added_p99_ms": _at_most(15.0, "ms"),
    "server.ttft_vs_vllm": _at_most(0.5, "x time"),
    "server.ttft_p99_vs_vllm": _at_most(0.7, "x time"),
    "server.noise": _at_most(2.0, "x p99 TTFT"),
    "server.noise_hits": _at_least(1.0, "x hit tokens"),
}
