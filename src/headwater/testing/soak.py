"""The long run: `python -m headwater.testing.soak --operations 20000000 --seed 1`.

Operations come in episodes, each a fresh cache of a random shape. An episode is reproduced by its
seed and number alone, so a failure after hours is a test that takes a second.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from headwater.cache.policies import POLICIES
from headwater.testing.driver import Driver, Shape

EPISODE = 1000
"""Operations before everything is let go of and the baseline must be reached."""


def episode(seed: int, number: int, operations: int = EPISODE, policy: str = "lru") -> Driver:
    """Run one episode; what it finds wrong is raised."""
    rng = random.Random(f"{seed}/{number}")
    driver = Driver(rng, Shape.drawn(rng, policy))
    driver.run(operations)
    return driver


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headwater.testing.soak", description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="lru")
    parser.add_argument("--episode", type=int, help="run only this one")
    options = parser.parse_args(arguments)
    if options.episode is not None:
        episode(options.seed, options.episode, policy=options.policy)
        return 0
    episodes = -(-options.operations // EPISODE)
    begun = shown = time.monotonic()
    for number in range(episodes):
        try:
            episode(options.seed, number, policy=options.policy)
        except BaseException:
            say(f"again: --seed {options.seed} --policy {options.policy} --episode {number}")
            raise
        if time.monotonic() - shown > 5 or number + 1 == episodes:
            shown = time.monotonic()
            rate = (number + 1) * EPISODE / (shown - begun)
            say(f"{(number + 1) * EPISODE:>12,} operations, {rate:,.0f} a second, all laws hold")
    return 0


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
