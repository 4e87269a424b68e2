"""Volume: random operations, every law watched after each."""

from __future__ import annotations

import random

import pytest

from headwater.testing.driver import Driver, Shape
from headwater.testing.soak import EPISODE, episode, main

EPISODES = 200


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_two_hundred_thousand_random_operations(part):
    for number in range(part, EPISODES, 10):
        episode(1, number)


@pytest.mark.parametrize("page", [1, 4, 16])
@pytest.mark.parametrize("pages", [7, 300])
def test_random_operations(page, pages):
    shape = Shape(page=page, pages=pages, ghost_tokens=5 * page, longest=8 * page)
    Driver(random.Random(f"{page}/{pages}"), shape).run(400)


def test_an_episode_is_reproduced_by_its_seed_and_number():
    first, second = (episode(5, 3, 300).rig.cache for _ in range(2))
    assert (first.evicted, first.pool.free) == (second.evicted, second.pool.free)
    assert EPISODE * EPISODES == 200_000


def test_the_long_run_is_one_command(capsys):
    assert main(["--operations", "1000", "--seed", "3"]) == 0
    assert "all laws hold" in capsys.readouterr().err
