"""Weights replaced in place: old KV is out of reach at once, and every answer goes on."""

from __future__ import annotations

import pytest

from headwater.schedule.events import CancelLoad, RunStep, SwapWeights
from tests.schedule.stage import Stage, tokens
from tests.schedule.test_transfers import PROMPT, shelved


@pytest.mark.parametrize("mode", ["restart", "drain"])
def test_an_idle_machine_swaps_at_once(mode):
    stage = Stage()
    stage.serve(tokens(9))
    stage.replace_weights(mode)
    assert stage.actions == [SwapWeights("w1")]
    assert stage.machine.cache.cached == 0
    assert stage.serve(tokens(9)).cached == 0
    assert stage.serve(tokens(9)).cached == 8


def test_restart_prefills_those_that_run_again_under_the_new_weights():
    stage = Stage()
    number = stage.send(tokens(10), max_tokens=12)
    stage.tick(4)
    stage.replace_weights("restart")
    assert not stage.actions  # a step runs
    stage.tick()
    assert [type(action) for action in stage.actions] == [SwapWeights, RunStep]
    assert stage.step.positions == list(range(15))
    stage.play()
    account = stage.account(number)
    assert (account.prompt, account.cached, account.computed) == (10, 0, 10)
    assert len(stage.text(number)) == 12


def test_restart_in_the_middle_of_a_prefill_begins_it_again():
    stage = Stage(step_tokens=8)
    stage.send(tokens(20))
    stage.send(tokens(20))
    stage.tick()
    stage.replace_weights("restart")
    stage.tick()
    assert stage.step.positions == list(range(8))
    stage.play()


def test_restart_cancels_a_load_of_old_kv():
    stage = shelved(pages=16)
    number = stage.send(PROMPT)
    load = stage.tier.loads[0]
    stage.replace_weights("restart")
    assert CancelLoad(load) in stage.actions
    assert stage.sequences() == [number]
    stage.deliver(stage.tier.deliver_load(load, 16))
    stage.play()
    account = stage.account(number)
    assert (account.loaded, account.computed) == (0, 16)


def test_drain_waits_for_answers_begun_and_admits_nobody_else():
    stage = Stage()
    running = stage.send(tokens(10), max_tokens=6)
    stage.tick(2)
    stage.replace_weights("drain")
    waiting = stage.send(tokens(10), max_tokens=6)
    stage.tick(3)
    assert stage.sequences() == [running]
    stage.tick()
    assert SwapWeights("w1") in stage.actions
    assert stage.sequences() == [waiting]
    stage.play()
    assert stage.account(waiting).cached == 0


def test_drain_lets_the_choices_of_a_prompt_begun_go_on():
    stage = Stage(running=2)
    number = stage.send(tokens(6), max_tokens=5, choices=2)
    stage.replace_weights("drain")
    stage.play()
    assert [len(stage.text(number, choice)) for choice in range(2)] == [5, 5]
    assert stage.machine.epoch == "w1"


def test_a_stream_of_new_requests_does_not_keep_weights_from_being_swapped():
    stage = Stage()
    stage.send(tokens(5), max_tokens=10)
    stage.replace_weights("drain")
    for kind in range(2, 12):
        stage.send(tokens(5, kind), max_tokens=10)
        stage.tick()
    assert stage.machine.epoch == "w1"
    stage.play()
    assert len(stage.finished) == 11


def test_drain_waits_for_a_load_that_somebody_waits_for():
    stage = shelved(pages=16)
    number = stage.send(PROMPT)
    stage.replace_weights("drain")
    assert stage.machine.epoch == "w0"
    stage.play()
    assert stage.account(number).loaded == 16
    assert stage.machine.epoch == "w1"


def test_of_two_replacements_the_later_is_put_in_place():
    stage = Stage()
    stage.send(tokens(5), max_tokens=3)
    stage.replace_weights("drain")
    stage.replace_weights("restart")
    stage.tick()
    assert SwapWeights("w2") in stage.actions
    stage.play()


def test_who_waits_is_served_under_the_new_weights():
    stage = Stage(running=1)
    stage.send(tokens(5), max_tokens=3)
    waiting = stage.send(tokens(5), max_tokens=3)
    stage.replace_weights("restart")
    stage.play()
    assert stage.account(waiting).cached == 4  # made by the first, after the swap
