"""Volume: random events on random shapes; and that the watch would see what went wrong."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.testing import machine_soak
from headwater.testing.machine_driver import MachineDriver
from headwater.testing.machine_shape import Shape

EPISODES = 10


@pytest.mark.parametrize("part", range(6))
def test_whatever_happens_answers_are_as_alone_and_nothing_leaks(part):
    drivers = [machine_soak.episode(1, part * EPISODES + i) for i in range(EPISODES)]
    assert sum(len(driver.finished) for driver in drivers) > EPISODES * 50
    assert sum(driver.cached_tokens for driver in drivers) > 0
    for driver in drivers:
        waiting = driver.machine._state.waiting
        left = (waiting._followers, waiting._behind, waiting._at, waiting._stale)
        assert not any(left), f"the waiting room kept {left}"
        assert_nothing_is_left(driver)


def assert_nothing_is_left(driver):
    cache = driver.machine.cache
    for namespace in list(cache.tree.roots):
        cache.forget(namespace)
    assert cache.pool.free_extents() == [(0, driver.shape.pages)]
    assert (cache.tree.nodes, cache.ghosts.tokens) == (0, 0)


def test_two_thousand_requests_given_up_at_random_leave_one_machine_as_it_was():
    shape = Shape(cancels=0.4)
    driver = MachineDriver(random.Random(6), shape)
    driver.run(2000)
    assert sum(asked.is_given_up for asked in driver.finished) > 400
    assert_nothing_is_left(driver)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_the_same_with_small_examples(rng):
    driver = MachineDriver(rng, Shape.drawn(rng))
    driver.run(8)


def test_a_seed_is_a_reproduction():
    logs = [machine_soak.episode(5, 2, requests=20).log for _ in range(2)]
    assert logs[0] == logs[1]


def test_the_soak_runs_from_the_command_line(capsys):
    assert machine_soak.main(["--requests", "60", "--seed", "3"]) == 0
    said = capsys.readouterr().err
    assert re.search(r"\d\d requests, .* all as alone", said)
    assert machine_soak.main(["--episode", "1"]) == 0
