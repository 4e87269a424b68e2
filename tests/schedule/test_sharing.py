"""KV that is still being made: one computes, the others wait for it, no longer than they must."""

from __future__ import annotations

from collections.abc import Sized

import pytest

from headwater.schedule.events import Cancelled, Finish
from tests.schedule.stage import Stage, tokens


def test_eight_equal_prompts_are_prefilled_once():
    stage = Stage(running=8)
    numbers = [stage.send(tokens(40)) for _ in range(8)]
    assert stage.machine.counts == (1, 0, 7)
    stage.play()
    assert sum(stage.account(number).computed for number in numbers) == 40 + 7
    assert sum(len(step.tokens) for step in stage.steps) == 40 + 7
    assert len({tuple(stage.text(number)) for number in numbers}) == 1


def test_when_the_leader_goes_before_it_ran_the_oldest_follower_leads_in_the_same_call():
    stage = Stage(running=4)
    other = stage.send(tokens(8, kind=2))  # its step runs while the others arrive
    leader, oldest, youngest = (stage.send(tokens(20)) for _ in range(3))
    stage.cancel(leader)
    assert stage.machine.counts == (2, 0, 1)
    stage.end_step()
    assert stage.sequences() == [oldest]
    stage.play()
    assert stage.account(oldest).computed == 20
    assert stage.account(youngest).cached == 19
    assert other in stage.asked


def test_when_the_leader_goes_in_its_step_the_oldest_follower_keeps_what_was_written():
    stage = Stage(step_tokens=8)
    leader, oldest, youngest = (stage.send(tokens(20)) for _ in range(3))
    stage.tick()  # [0, 8) is written, [8, 16) is being computed
    stage.cancel(leader)
    stage.tick()
    assert stage.sequences() == [oldest]
    assert stage.step.positions == list(range(16, 20))
    stage.play()
    assert stage.account(oldest).cached == 16
    assert stage.account(youngest).cached == 19


def test_the_owners_chunk_is_cut_where_a_follower_branches_off():
    stage = Stage(running=4)
    blocker = stage.send(tokens(3, kind=2))  # while its step runs, both others arrive
    owner = stage.send(tokens(40))
    follower = stage.send([*tokens(20), *tokens(10, kind=3)])
    stage.tick()
    assert stage.step.positions == list(range(20))
    stage.tick()
    assert set(stage.sequences()) == {owner, follower}
    assert sorted(stage.step.positions) == sorted([*range(20, 40), *range(20, 30)])
    stage.play()
    assert stage.account(follower).cached == 20
    assert blocker in stage.asked


def test_who_waits_for_a_promise_lets_others_pass():
    stage = Stage(step_tokens=8)
    stage.send(tokens(30))
    stage.send(tokens(30))
    passing = stage.send(tokens(2, kind=2))
    stage.tick(4)
    assert passing not in stage.live
    stage.play()


def test_the_choices_of_a_prompt_share_it_and_one_row_of_logits():
    stage = Stage()
    number = stage.send(tokens(10), max_tokens=6, choices=3)
    samples = stage.step.samples
    assert [(sample.row, sample.choice) for sample in samples] == [(9, 0), (9, 1), (9, 2)]
    stage.play()
    assert stage.account(number).computed == 10
    for choice in (1, 2):
        assert stage.account(number, choice).computed == 0
    assert len({tuple(stage.text(number, choice)) for choice in range(3)}) > 1


def test_each_choice_of_a_whole_page_prompt_goes_on_without_a_copy():
    stage = Stage(page=4)
    stage.send(tokens(8), max_tokens=3, choices=3)
    stage.tick()
    assert not stage.step.copies
    stage.play()


def test_one_choice_of_a_mid_page_prompt_goes_on_in_the_page_and_the_others_copy():
    stage = Stage(page=4)
    stage.send(tokens(10), max_tokens=3, choices=3)
    stage.tick()
    assert [copy.count for copy in stage.step.copies] == [2, 2]
    stage.play()


def finished(stage):
    return [(a.request, a.choice, a.reason) for a in stage.actions if isinstance(a, Finish)]


class TestCancelled:
    """In whatever state: reported, leases gone, when the step is done at the latest; KV kept."""

    def test_while_it_waits(self):
        stage = Stage(running=1)
        stage.send(tokens(4), max_tokens=3)
        waiting = stage.send(tokens(4, kind=2))
        stage.cancel(waiting)
        assert finished(stage) == [(waiting, 0, "cancelled")]
        assert stage.machine.counts == (1, 0, 0)
        stage.play()

    def test_while_it_waits_for_a_promise(self):
        stage = Stage(step_tokens=8)
        stage.send(tokens(30))
        follower = stage.send(tokens(30))
        stage.cancel(follower)
        assert stage.machine.counts == (1, 0, 0)
        stage.play()

    def test_while_its_step_runs(self):
        stage = Stage()
        number = stage.send(tokens(10), max_tokens=20)
        stage.tick(3)
        stage.cancel(number)
        assert finished(stage) == []  # its pages are being written
        assert stage.leases == 1
        stage.tick()
        assert finished(stage) == [(number, 0, "cancelled")]
        assert stage.leases == 0
        stage.settle()
        account = stage.serve([*tokens(10), *stage.text(number)[:3]])
        assert account.cached == 12

    def test_in_the_middle_of_its_prefill(self):
        stage = Stage(step_tokens=8)
        number = stage.send(tokens(30))
        stage.tick()
        stage.cancel(number)
        stage.tick()
        assert stage.leases == 0
        assert stage.serve(tokens(30)).cached == 16

    def test_admitted_and_not_in_the_step(self):
        stage = Stage()
        stage.send(tokens(4))
        number = stage.send(tokens(10, kind=2))
        assert stage.leases == 2
        stage.cancel(number)
        assert stage.leases == 1
        stage.play()

    @pytest.mark.parametrize("steps", [0, 1, 2])
    def test_with_several_choices(self, steps):
        stage = Stage()
        number = stage.send(tokens(10), max_tokens=9, choices=3)
        stage.tick(steps)
        stage.cancel(number)
        ended = finished(stage)
        stage.tick()
        ended += finished(stage)
        assert sorted(ended) == [(number, choice, "cancelled") for choice in range(3)]
        assert stage.leases == 0
        stage.settle()

    def test_many_that_waited_leave_nothing_behind(self):
        stage = Stage(running=1)
        stage.send(tokens(4), max_tokens=30)
        for kind in range(2, 50):
            stage.cancel(stage.send(tokens(4, kind=kind)))
        room = stage.machine._state.waiting
        assert not [kept for kept in vars(room).values() if isinstance(kept, Sized) and len(kept)]
        stage.play()

    def test_twice_or_never_asked(self):
        stage = Stage()
        number = stage.send(tokens(4))
        stage.cancel(number)
        for unknown in (number, 99):
            stage.deliver(Cancelled(unknown))
            assert not stage.actions
        stage.tick()
        stage.settle()
