"""The long run of the scheduler: `python -m headwater.testing.machine_soak --requests 100000`.

Requests come in episodes, each a fresh machine of a random shape that must be at its baseline when
the episode ends. An episode is reproduced by its seed and number alone.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from headwater.testing.machine_driver import MachineDriver
from headwater.testing.machine_shape import Shape
from headwater.testing.soak import say

EPISODE = 60
"""Requests before everybody leaves."""


def episode(seed: int, number: int, requests: int = EPISODE) -> MachineDriver:
    """Run one episode; what it finds wrong is raised."""
    rng = random.Random(f"{seed}/{number}")
    driver = MachineDriver(rng, Shape.drawn(rng))
    driver.run(requests)
    return driver


def main(arguments: list[str] | None = None) -> int:
    program = "python -m headwater.testing.machine_soak"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episode", type=int, help="run only this one")
    options = parser.parse_args(arguments)
    if options.episode is not None:
        episode(options.seed, options.episode)
        return 0
    episodes = -(-options.requests // EPISODE)
    begun = shown = time.monotonic()
    finished = events = 0
    for number in range(episodes):
        try:
            driver = episode(options.seed, number)
        except Exception:
            say(f"again: --seed {options.seed} --episode {number}")
            raise
        finished += len(driver.finished)
        events += len(driver.log)
        if time.monotonic() - shown > 5 or number + 1 == episodes:
            shown = time.monotonic()
            rate = events / (shown - begun)
            say(f"{finished:>9,} requests, {events:,} events, {rate:,.0f} a second, all as alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
