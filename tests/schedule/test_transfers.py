"""Loads that keep their promise, keep it in part, or do not; stores; and whose pages are whose."""

from __future__ import annotations

import pytest

from headwater.schedule.events import CancelLoad, LoadDone, StartLoad, StartStore, StoreDone
from tests.schedule.stage import Stage, tokens

PAGE = 4
PROMPT = tokens(16)


def shelved(*, keeps_on_device=0, pages=8):
    """A stage whose tier has PROMPT, of which the device has only the first pages, if any."""
    stage = Stage(page=PAGE, pages=pages, tier=True)
    stage.serve(PROMPT)
    stage.tier.keeps = False
    stage.serve(tokens((pages - keeps_on_device) * PAGE, kind=9))
    return stage


def load_of(stage):
    return next(a for a in stage.actions if isinstance(a, StartLoad))


def test_what_the_tier_has_is_loaded_and_not_computed():
    stage = shelved()
    number = stage.send(PROMPT)
    load = load_of(stage)
    assert (load.begin, load.end) == (0, 16)
    stage.play()
    account = stage.account(number)
    assert (account.loaded, account.computed, account.tier) == (16, 0, "attic")
    assert stage.steps[-1].slots == [stage.memory.sink]


def test_a_load_begins_where_the_device_ends():
    stage = shelved(keeps_on_device=2)
    number = stage.send(PROMPT)
    assert load_of(stage).begin == 8
    stage.play()
    account = stage.account(number)
    assert (account.cached, account.loaded, account.computed) == (8, 8, 0)


@pytest.mark.parametrize("delivered", range(17))
def test_what_a_load_did_not_deliver_is_computed_for_all_who_wait(delivered):
    stage = shelved()
    leader, follower = stage.send(PROMPT), stage.send([*PROMPT, 5])
    assert stage.machine.counts == (0, 1, 1)
    stage.deliver(stage.tier.deliver_load(stage.tier.loads[0], delivered))
    stage.play()
    account = stage.account(leader)
    assert (account.loaded, account.computed) == (delivered, 16 - delivered)
    assert stage.account(follower).cached == 16


def test_when_a_load_fails_all_is_computed_and_the_account_says_why():
    stage = shelved()
    number = stage.send(PROMPT)
    stage.deliver(stage.tier.fail(stage.tier.loads[0]))
    assert stage.step.positions == list(range(16))
    stage.play()
    account = stage.account(number)
    assert (account.loaded, account.computed) == (0, 16)
    assert account.load_failure == "the tier does not answer"


@pytest.mark.parametrize("claimed", [-3, 16, 10**9])
def test_a_length_that_makes_no_sense_is_cut_to_what_was_asked(claimed):
    stage = shelved()
    number = stage.send(PROMPT)
    load = stage.tier.loads[0]
    stage.tier.deliver_load(load, 16)
    stage.deliver(LoadDone(load, claimed))
    stage.play()
    assert stage.account(number).loaded == max(0, min(claimed, 16))


def test_while_one_loads_others_compute():
    stage = shelved(pages=16)
    loading = stage.send(PROMPT)
    other = stage.send(tokens(5, kind=3))
    stage.tick()
    assert other not in stage.live
    assert loading in stage.live
    stage.play()


class TestCancelled:
    def test_its_pages_come_back_when_the_load_has_ended_and_not_before(self):
        stage = shelved()
        number = stage.send(PROMPT)
        load = load_of(stage)
        stage.cancel(number)
        assert CancelLoad(load.load) in stage.actions
        cache = stage.machine.cache
        assert cache.in_io == 4
        assert not cache.leases
        assert not stage.machine.is_idle
        waiting = stage.send(tokens(8 * PAGE, kind=7))  # needs all pages
        assert stage.step is None
        stage.deliver(stage.tier.deliver_load(load.load, 16))
        assert cache.in_io == 0
        assert stage.sequences() == [waiting]
        stage.play()

    def test_a_second_end_and_the_end_of_an_unknown_load_do_nothing(self):
        stage = shelved()
        number = stage.send(PROMPT)
        load = load_of(stage)
        stage.cancel(number)
        stage.deliver(stage.tier.deliver_load(load.load, 16))
        for again in (LoadDone(load.load, 16), LoadDone(999, 4), StoreDone(999)):
            stage.deliver(again)
            assert not stage.actions
        stage.settle()

    def test_the_oldest_follower_loads_anew_in_the_same_call(self):
        stage = shelved(pages=16)
        leader, follower = stage.send(PROMPT), stage.send(PROMPT)
        stage.cancel(leader)
        assert load_of(stage).request == follower
        stage.play()
        assert stage.account(follower).loaded == 16

    def test_nobody_goes_on_in_the_page_into_which_the_load_still_writes(self):
        """The load begins in mid-page, behind a leaf that the next turn would have adopted."""
        stage = Stage(page=PAGE, pages=32, tier=True, ghost_tokens=0)
        stage.serve(PROMPT)
        stage.tier.keeps = False
        stage.serve(tokens(32 * PAGE, kind=9))
        stage.tier.offers = lambda *about: 0
        stage.serve(tokens(6))
        del stage.tier.offers
        loading = stage.send(PROMPT)
        assert load_of(stage).begin == 6
        stage.cancel(loading)
        stage.tier.offers = lambda *about: 0
        next_turn = stage.send([*tokens(6), 1, 2, 3], max_tokens=9)
        stage.tick(2)
        stage.deliver(stage.tier.deliver_load(stage.tier.loads[0], 10))
        stage.play()
        assert stage.account(next_turn).cached == 6


def test_what_is_being_stored_is_not_evicted():
    stage = Stage(page=PAGE, pages=8, tier=True)
    stage.send(PROMPT)
    stage.tick()
    store = next(a for a in stage.actions if isinstance(a, StartStore))
    assert (store.begin, store.end) == (0, 16)
    large = stage.send(tokens(8 * PAGE, kind=2))
    assert stage.step is None
    assert stage.machine.cache.pinned == 4
    stage.deliver(stage.tier.end_store(store.store))
    assert stage.sequences() == [large]
    stage.play()


def test_a_store_outlives_its_request_and_the_machine_is_not_idle_before_it_ends():
    stage = Stage(page=PAGE, tier=True)
    stage.send(PROMPT)
    stage.tick()
    assert not stage.live
    assert not stage.machine.is_idle
    stage.play()
    assert stage.machine.is_idle


@pytest.mark.parametrize("end", [1, 8, 16, 17, 99])
def test_an_offer_is_cut_to_what_is_missing(end):
    stage = shelved(keeps_on_device=2)
    stage.tier.offer = lambda namespace, key, ready, now: stage.tier._answer("attic", 0, end)
    number = stage.send(PROMPT)
    begun = [action for action in stage.actions if isinstance(action, StartLoad)]
    assert [load.end for load in begun] == ([16] if end > 8 else [])
    stage.play()
    assert stage.account(number).loaded == (8 if end > 8 else 0)
