"""A peer without an engine: it prints as engines do, answers, fails and ends on demand."""

from __future__ import annotations

import os
import sys


class Peer:
    def cold(self, tokens: list[int]) -> float:
        sys.stdout.write("chatter that must not reach the wire\n")
        return len(tokens) / 1000

    def hit(self, tokens: list[int]) -> float:
        raise ValueError("no such prompt")

    def decode(self, prompts: list[list[int]], new_tokens: int) -> float:
        os._exit(3)
