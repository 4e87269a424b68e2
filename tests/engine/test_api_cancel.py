"""A cancelled request leaves nothing behind but the KV it has computed."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from concurrent.futures import Future

import pytest

from headwater import Cancelled, EngineStopped, Headwater
from headwater.cache.check import check_idle
from headwater.engine.engine import Ask

LONG = {"max_tokens": 150, "ignore_eos": True}


def settled(hw):
    """The engine's numbers once nothing runs any more."""
    for _ in range(500):
        stats = hw.stats()
        if not (stats.running or stats.waiting):
            return stats
        time.sleep(0.01)
    raise AssertionError(f"still busy: {stats}")


def assert_nothing_is_held(hw):
    stats = settled(hw)
    assert (stats.pages.private, stats.pages.pinned, stats.pages.in_io) == (0, 0, 0)
    assert stats.pages.free + stats.pages.cached == stats.pages.total
    hw.close()
    check_idle(hw._engine._machine.cache)
    assert not hw._engine._jobs


def test_a_handle_is_cancelled(hw):
    generation = hw.submit("the fox", **LONG)
    pieces = iter(generation)
    next(pieces)
    generation.cancel()
    with pytest.raises(Cancelled, match="cancelled before it finished"):
        list(pieces)
    with pytest.raises(Cancelled):
        generation.result()
    assert settled(hw).tokens.generated < 150
    assert_nothing_is_held(hw)


def test_a_loop_that_is_left_cancels(hw):
    for piece in hw.stream("the fox", **LONG):
        if piece.text:
            break
    assert settled(hw).tokens.generated < 150
    assert_nothing_is_held(hw)


def test_an_iterator_that_is_closed_cancels_even_before_its_first_piece(hw):
    hw.stream("the fox", **LONG).close()
    assert settled(hw).tokens.generated < 150
    assert_nothing_is_held(hw)


def test_a_handle_that_is_dropped_cancels(hw):
    hw.submit("the fox", **LONG)
    gc.collect()
    assert settled(hw).tokens.generated < 150
    assert_nothing_is_held(hw)


def test_what_was_computed_stays_cached(hw):
    prompt = list(range(2, 100))
    for _ in hw.stream(prompt, **LONG):
        break
    settled(hw)
    assert hw.generate(prompt, max_tokens=1).usage.cached_tokens == 97


def test_all_choices_are_cancelled_together(hw):
    generation = hw.submit("the fox", n=5, **LONG)
    next(iter(generation))
    generation.cancel()
    with pytest.raises(Cancelled):
        generation.result()
    assert_nothing_is_held(hw)


def test_the_event_loop_goes_on_while_a_prompt_becomes_tokens(hw, monkeypatch):
    encode, begun, go_on = hw.loaded.tokenizer.encode, threading.Event(), threading.Event()

    def slow(text, room):
        begun.set()
        assert go_on.wait(10), "the loop was kept from setting it"
        return encode(text, room)

    async def main():
        task = asyncio.create_task(hw.agenerate("the fox", max_tokens=1))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        go_on.set()
        return await task

    monkeypatch.setattr(hw.loaded.tokenizer, "encode", slow)
    assert asyncio.run(main()).usage.completion_tokens == 1


def test_cancelling_what_has_ended_does_nothing(hw):
    generation = hw.submit("the fox", max_tokens=3, ignore_eos=True)
    result = generation.result()
    generation.cancel()
    assert generation.result() == result
    assert_nothing_is_held(hw)


def test_a_task_that_is_cancelled_cancels_its_request(hw):
    async def main():
        task = asyncio.create_task(hw.agenerate("the fox", **LONG))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert settled(hw).tokens.generated < 150
    assert_nothing_is_held(hw)


def test_an_async_generator_that_is_closed_cancels(hw):
    async def main():
        stream = hw.astream("the fox", **LONG)
        async for piece in stream:
            if piece.text:
                break
        await stream.aclose()

    asyncio.run(main())
    assert settled(hw).tokens.generated < 150
    assert_nothing_is_held(hw)


def test_a_loop_that_is_closed_harms_nobody(hw):
    async def main():
        kept.append(await hw.asubmit("the fox", **LONG))

    kept = []
    asyncio.run(main())
    assert settled(hw).tokens.generated < 150
    assert hw.healthy


def test_async_and_threads_answer_alike(hw):
    asked = {"max_tokens": 12, "seed": 4, "n": 2, "ignore_eos": True}

    async def main():
        several = await asyncio.gather(*(hw.agenerate("the dog", **asked) for _ in range(3)))
        streamed = [piece async for piece in hw.astream("the dog", **asked)]
        return several, streamed

    expected = hw.generate("the dog", **asked)
    several, streamed = asyncio.run(main())
    assert all(each.choices == expected.choices for each in several)
    for choice in expected.choices:
        assert "".join(p.text for p in streamed if p.choice == choice.index) == choice.text


@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_with_random_cancels_leaves_no_trace(engine, seed):
    """Seventy requests from six threads over a pool far too small for them, a third cancelled."""
    hw = engine(kv_memory="60 pages", max_running=12, step_tokens=48)
    draw = random.Random(seed)
    shared = [[draw.randrange(2, 300) for _ in range(60)] for _ in range(3)]
    plans = [
        {
            "prompt": draw.choice(shared)[: draw.randint(1, 60)]
            + [draw.randrange(2, 300) for _ in range(draw.randint(0, 40))],
            "n": draw.choice([1, 1, 1, 2, 4]),
            "max_tokens": draw.randint(1, 40),
            "domain": draw.choice(["a", "b"]),
            "priority": draw.choice([0, 0, 1]),
            "cancel_after": draw.choice([None, None, draw.randint(0, 10)]),
        }
        for _ in range(70)
    ]
    outcomes = []

    def caller(mine):
        outcomes.extend(serve(hw, dict(plan)) for plan in mine)

    threads = [threading.Thread(target=caller, args=(plans[at::6],)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(outcomes) == 70
    assert {"done", "cancelled"} <= set(outcomes)
    assert settled(hw).requests == 70
    assert_nothing_is_held(hw)


def serve(hw, plan):
    after, prompt = plan.pop("cancel_after"), plan.pop("prompt")
    generation = hw.submit(prompt, temperature=1.0, seed=1, ignore_eos=True, **plan)
    try:
        if after is not None:
            for at, _ in enumerate(generation):
                if at == after:
                    generation.cancel()
        assert len(generation.result().choices) == plan["n"]
    except Cancelled:
        return "cancelled"
    return "done"


# When the thread dies


def test_a_failure_in_the_thread_reaches_every_request(hw, monkeypatch):
    def fail(step, params):
        raise MemoryError("no more")

    running = [hw.submit(f"fox {n}", **LONG) for n in range(4)]
    monkeypatch.setattr(hw._engine._runner, "run", fail)
    for generation in running:
        with pytest.raises(EngineStopped, match="MemoryError: no more"):
            generation.result()
    assert not hw.healthy
    with pytest.raises(EngineStopped, match="MemoryError: no more"):
        hw.generate("later")
    with pytest.raises(EngineStopped, match="MemoryError: no more"):
        hw.stats()
    hw.close()


def test_an_async_request_fails_loudly_too(hw, monkeypatch):
    def fail(step, params):
        raise MemoryError("no more")

    monkeypatch.setattr(hw._engine._runner, "run", fail)

    async def main():
        with pytest.raises(EngineStopped):
            await hw.agenerate("the fox")

    asyncio.run(main())


def test_books_that_do_not_balance_stop_a_checked_engine(hw):
    hw.generate("the fox", max_tokens=2)
    hw._engine._machine.cache.cached += 1
    with pytest.raises(EngineStopped, match="Unbalanced"):
        hw.generate("the fox", max_tokens=2)


def test_nobody_needs_to_close(engine, loaded):
    """An engine that nobody refers to any more ends by itself."""
    hw = Headwater(loaded, kv_memory="8 pages", secret=bytes(32))
    thread = hw._engine._thread
    hw.generate("x", max_tokens=1)
    del hw
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def test_what_came_with_the_message_that_failed_is_told_as_well(hw, monkeypatch):
    """Nobody waits for ever for an answer that stood behind it in the inbox."""
    held, run = threading.Event(), hw._engine._runner.run

    def held_run(step, params):
        held.wait(10)
        return run(step, params)

    def fail(event, now):
        raise MemoryError("no more")

    monkeypatch.setattr(hw._engine._runner, "run", held_run)
    running = [hw.submit("the fox", **LONG)]
    time.sleep(0.05)
    monkeypatch.setattr(hw._engine._machine, "handle", fail)
    running += [hw.submit(f"fox {n}", **LONG) for n in range(2)]
    answer = Future()
    hw._engine.post(Ask(lambda machine: machine, answer))
    held.set()
    for generation in running:
        with pytest.raises(EngineStopped, match="MemoryError"):
            generation.result(timeout=10)
    with pytest.raises(EngineStopped, match="MemoryError"):
        answer.result(timeout=10)
