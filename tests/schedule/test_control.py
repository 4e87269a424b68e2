"""Holds, flushes and requests that keep away from the cache, as the machine decides them."""

from __future__ import annotations

import pytest

from headwater.cache.tokens import pack
from headwater.schedule.events import (
    Flushed,
    FlushPrefixes,
    Held,
    HoldEnded,
    HoldPrefix,
    LetGo,
    Wake,
    WakeAt,
)
from tests.schedule.stage import Stage, tokens

PAGE = 4


def hold(stage, prompt, seconds=1000.0, pages=64, number=1, **whose):
    until = stage.now + 1 + seconds  # the stage's clock moves on before it delivers
    stage.deliver(HoldPrefix(number, pack(prompt), until, pages, **whose))
    [held] = [each for each in stage.actions if isinstance(each, Held)]
    return held


def ended(stage):
    return [(e.hold, e.why) for e in stage.actions if isinstance(e, HoldEnded)]


def flush(stage, prefix, **whose):
    stage.deliver(FlushPrefixes(1, pack(prefix), **whose))
    [done] = [each for each in stage.actions if isinstance(each, Flushed)]
    return done.tokens, done.in_use


def flood(stage, times=30):
    for number in range(times):
        stage.serve([100 + number] * (4 * PAGE))


def test_a_held_prompt_is_hit_after_a_flood():
    stage = Stage(page=PAGE, pages=16)
    stage.serve(tokens(8))
    assert hold(stage, tokens(8)) == Held(1, 8, 2)
    flood(stage)
    assert stage.serve(tokens(8)).cached == 7


def test_a_hold_asks_to_be_woken_and_ends_then():
    stage = Stage(page=PAGE, pages=16)
    stage.serve(tokens(8))
    hold(stage, tokens(8), seconds=5.0)
    [wake] = [each for each in stage.actions if isinstance(each, WakeAt)]
    assert stage.now < wake.time <= stage.now + 6
    stage.now = wake.time
    stage.deliver(Wake())
    assert ended(stage) == [(1, "expired")]
    assert stage.machine.holds == 0
    flood(stage)
    assert stage.serve(tokens(8)).cached == 0


def test_the_next_hold_to_end_is_woken_for():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    for number, seconds in ((1, 50.0), (2, 5.0)):
        hold(stage, tokens(8), seconds, number=number)
    stage.now += 10
    stage.deliver(Wake())
    assert ended(stage) == [(2, "expired")]
    assert any(isinstance(each, WakeAt) for each in stage.actions)


def test_what_a_domain_holds_is_bounded_over_all_its_holds():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    stage.serve([9] * 12)
    assert hold(stage, tokens(8), pages=3, number=1).pages == 2
    assert hold(stage, [9] * 12, pages=3, number=2) == Held(2, 4, 1)
    assert hold(stage, [9] * 12, pages=3, number=3) == Held(3, 0, 0)
    assert stage.machine.holds_of("")[0].tokens == 8


def test_one_domain_cannot_hold_what_another_has():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8), domain="a")
    assert hold(stage, tokens(8), domain="b") == Held(1, 0, 0)


def test_a_hold_gives_way_when_a_request_could_not_run_at_all():
    stage = Stage(page=PAGE, pages=8)
    stage.serve(tokens(16))
    hold(stage, tokens(16))
    stage.send([7] * 28)
    assert ended(stage) == [(1, "needed")]
    stage.play()
    assert stage.account(2).computed == 28


def test_a_hold_gives_way_to_an_answer_that_grows_alone():
    stage = Stage(page=PAGE, pages=8)
    stage.serve(tokens(16))
    hold(stage, tokens(16))
    stage.send([7] * 14, max_tokens=15)
    stage.play()
    assert len(stage.text(2)) == 15
    assert stage.machine.holds == 0
    stage.holds.clear()


def test_let_go_ends_a_hold_and_is_harmless_again():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    hold(stage, tokens(8))
    for _ in range(2):
        stage.holds.clear()
        stage.deliver(LetGo(1))
        assert stage.machine.holds == 0
        assert not ended(stage)


def test_new_weights_end_all_holds():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    hold(stage, tokens(8))
    stage.replace_weights("restart")
    assert ended(stage) == [(1, "swapped")]


def test_flush_counts_what_went_and_ends_the_holds_within():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    stage.serve([9] * 12)
    hold(stage, tokens(8))
    assert flush(stage, tokens(8)) == (8, 0)
    assert ended(stage) == [(1, "flushed")]
    assert flush(stage, []) == (12, 0)
    assert flush(stage, []) == (0, 0)


def test_flush_knows_the_domain_and_all_its_salts():
    stage = Stage(page=PAGE)
    for salt in ("", "s", "t"):
        stage.serve(tokens(8), domain="a", salt=salt)
    stage.serve(tokens(8), domain="b")
    assert flush(stage, [], domain="a", salt="s") == (8, 0)
    assert flush(stage, [], domain="a", salt=None) == (16, 0)
    assert stage.serve(tokens(8), domain="b").cached == 7


def test_flush_leaves_what_runs_alone():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    stage.send([*tokens(8), 5], max_tokens=3)
    gone, in_use = flush(stage, tokens(8))
    assert gone == 0
    assert in_use >= 8
    stage.play()


@pytest.mark.parametrize("choices", [1, 3])
def test_a_request_that_does_not_read_computes_all_and_says_so(choices):
    stage = Stage(page=PAGE)
    stage.serve(tokens(9))
    number = stage.send(tokens(9), max_tokens=3, reads=False, choices=choices)
    stage.play()
    account = stage.account(number)
    assert (account.cached, account.computed) == (0, 9)
    assert account.miss is not None
    assert account.miss.kind == "not_shared"


def test_a_request_that_does_not_read_still_serves_later_ones():
    stage = Stage(page=PAGE)
    stage.serve(tokens(9), reads=False)
    assert stage.serve(tokens(9)).cached == 8


def test_a_request_that_does_not_store_reads_and_leaves_nothing():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    pages = stage.memory.pool.free
    account = stage.serve([*tokens(8), 5, 5, 5, 5, 5], stores=False)
    assert account.cached == 8
    assert stage.memory.pool.free == pages
    assert stage.serve([*tokens(8), 5, 5, 5, 5, 5]).cached == 8


def test_nobody_waits_for_what_will_not_be_stored():
    stage = Stage(page=PAGE, step_tokens=8)
    stage.send(tokens(24), stores=False)
    stage.send(tokens(24))
    stage.play()
    assert stage.account(2).waited_promise == 0
    assert stage.account(2).computed == 24


def test_a_forecast_says_what_a_request_would_find():
    stage = Stage(page=PAGE)
    stage.serve(tokens(8))
    found = stage.machine.forecast(pack([*tokens(6), 77, 78]), "", "")
    assert (found.ready, found.miss.kind, found.miss.at) == (6, "diverged", 6)
    assert stage.machine.forecast(pack(tokens(8)), "", "").ready == 7
    assert stage.machine.forecast(pack(tokens(8)), "b", "").miss.kind == "never_seen"


def test_scored_prompts_come_in_bounded_chunks_and_name_their_next_tokens():
    stage = Stage(page=PAGE, scored_rows=4)
    stage.send(tokens(10), scores=True, reads=False)
    stage.play()
    scores = [each for step in stage.steps for each in step.scores]
    assert [(each.position, len(each.targets)) for each in scores] == [(1, 4), (5, 4), (9, 1)]
    assert [t for each in scores for t in each.targets] == tokens(10)[1:]
    assert all(len(step.tokens) <= 4 for step in stage.steps)
