"""What a caller may do wrong costs that caller one sentence, and the engine nothing."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tokenizers import Tokenizer as Fast

from headwater import BadRequest, BadSetting, EngineStopped, Headwater, LoadedModel
from headwater.engine import asked
from headwater.engine.generation import Generation
from headwater.engine.mailbox import Mailbox
from headwater.engine.options import read_options
from tests.engine.tiny import CONTEXT, make_model


@pytest.fixture(scope="module")
def added_to(tmp_path_factory):
    """A model with a tokenizer that has a token more, as after a fine-tune without resizing."""
    folder = make_model(tmp_path_factory.mktemp("added"))
    file = str(folder / "tokenizer.json")
    fast = Fast.from_file(file)
    fast.add_special_tokens(["<|tool|>"])
    fast.save(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return LoadedModel.load(folder, dtype="float32", device="cpu")


@pytest.mark.parametrize("prompt", ["a <|tool|>", [{"role": "user", "content": "<|tool|>"}]])
def test_a_text_with_a_token_the_model_has_no_row_for_is_refused(engine, added_to, prompt):
    hw = engine(added_to)
    with pytest.raises(BadRequest, match="token ids must lie in"):
        hw.generate(prompt)
    assert hw.generate("a", max_tokens=1).text is not None
    assert hw.healthy


@pytest.mark.parametrize(
    "prompt", ["x" * 10_000_000, [{"role": "user", "content": "x" * 10_000_000}]]
)
def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenised(hw, monkeypatch, prompt):
    monkeypatch.setattr(hw.loaded.tokenizer, "_fast", None)
    with pytest.raises(BadRequest, match=r"The prompt has 100000\d\d bytes"):
        hw.generate(prompt)


def test_no_text_that_fits_is_refused_for_its_bytes(loaded):
    spelled = loaded.tokenizer._fast.get_vocab(with_added_tokens=True)
    longest = max(spelled, key=lambda token: len(token.encode()))
    text = longest.replace("Ġ", " ") * CONTEXT
    assert len(loaded.tokenizer.encode(text, CONTEXT)) <= CONTEXT


def test_ids_that_cannot_fit_are_refused_before_they_are_read(hw):
    with pytest.raises(BadRequest, match="has 100000000 tokens, but the model's context"):
        hw.generate(range(100_000_000))


def test_others_go_on_while_a_text_becomes_tokens(loaded):
    text = "the quick brown fox, " * 60_000
    ended = threading.Event()

    def work():
        loaded.tokenizer.encode(text)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    longest, last = 0.0, time.perf_counter()
    begun = last
    while not ended.is_set():
        time.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    thread.join()
    assert longest < 0.6 * (last - begun)


@pytest.mark.parametrize(
    "stop",
    [["x"] * (asked.MOST_STOPS + 1), "x" * (asked.LONGEST_STOP + 1)],
    ids=["many", "long"],
)
def test_stop_strings_are_bounded(hw, stop):
    with pytest.raises(BadRequest, match="At most 16 stop strings of 256 characters"):
        hw.generate("x", stop=stop)


def test_as_many_stop_strings_as_allowed_are_looked_for(hw):
    stop = ["~" * (asked.LONGEST_STOP - 1) + chr(65 + n) for n in range(asked.MOST_STOPS)]
    assert hw.generate("x", stop=stop, max_tokens=2).usage.completion_tokens >= 1


_FORKED = """
import os, sys
from headwater import EngineStopped, Headwater, LoadedModel
loaded = LoadedModel.load(sys.argv[1], dtype="float32", device="cpu")
hw = Headwater(loaded, kv_memory="64 pages", page=4, secret=bytes(32))
running = hw.submit("the fox", max_tokens=200, ignore_eos=True)
child = os.fork()
if child == 0:
    told = 0
    for ask in (lambda: hw.generate("x"), hw.stats, running.result):
        try:
            ask()
        except EngineStopped as error:
            told += "process that forked" in str(error)
    running.cancel()
    hw.close()
    os._exit(10 + told + hw.healthy)
_, status = os.waitpid(child, 0)
assert running.result().usage.completion_tokens == 200
hw.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_told_that_its_engine_is_elsewhere(loaded):
    words = [sys.executable, "-c", _FORKED, str(loaded.folder.path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 13, done.stderr


def test_what_a_dead_engine_refuses_leaves_nothing_behind(engine, monkeypatch):
    hw = engine()
    monkeypatch.setattr(hw._engine._runner, "run", lambda *_: 1 / 0)
    with pytest.raises(EngineStopped):
        hw.generate("x")
    hw._engine._thread.join()
    for _ in range(3):
        with pytest.raises(EngineStopped, match="ZeroDivisionError"):
            hw.submit("x")
    assert hw._engine._inbox.empty()


@pytest.mark.parametrize("prompt", [np.array(5), np.array("x"), b"x", np.float64(3)])
def test_what_has_no_length_or_no_integers_is_no_prompt(hw, prompt):
    with pytest.raises(BadRequest, match="A prompt is a text"):
        hw.generate(prompt)


def test_numbers_of_numpy_count_as_pythons(hw):
    asked = {
        "max_tokens": np.int64(5),
        "temperature": np.float32(0),
        "seed": np.uint8(3),
        "stop_token_ids": np.array([1, 2]),
        "ignore_eos": np.True_,
        "stop": [np.str_("never said")],
    }
    assert hw.generate("x", **asked).seed == 3
    with pytest.raises(BadRequest, match="max_tokens: Expected `int`, got `bool`"):
        hw.generate("x", max_tokens=np.True_)
    assert read_options({"page": np.int64(8)}).page == 8


@pytest.mark.parametrize("timeout", [math.nan, -1, 0, -math.inf])
def test_no_time_to_wait_is_a_timeout_at_once(timeout):
    with pytest.raises(TimeoutError):
        Generation(b"", 1, lambda: None).result(timeout)


@pytest.mark.parametrize("timeout", [1e300, math.inf, 10**400])
def test_a_timeout_without_end_waits(hw, timeout):
    assert hw.submit("x", max_tokens=2).result(timeout).usage.completion_tokens >= 1


def test_a_handle_interrupted_while_it_is_made_goes_quietly(monkeypatch):
    unraised = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)

    def interrupted(choices):
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater.engine.generation.Assembly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Generation(b"", 1, lambda: None)
    assert unraised == []


def test_a_secret_that_cannot_be_made_is_a_bad_setting(loaded, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    with pytest.raises(BadSetting, match=r"The secret .* cannot be made"):
        Headwater(loaded, kv_memory="64 pages")


def test_a_mailbox_wakes_its_loop_once_for_what_comes_together_and_keeps_the_order():
    async def story():
        loop = asyncio.get_running_loop()
        calls = []
        original = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args: (calls.append(args), original(*args))[1]
        mailbox = Mailbox(loop)
        queues = [asyncio.Queue() for _ in range(3)]
        delivers = [mailbox.into(queue, lambda: None) for queue in queues]
        for item in range(30):
            delivers[item % 3](item)
        assert len(calls) == 1
        await asyncio.sleep(0)
        assert [queue.get_nowait() for queue in queues for _ in range(10)] == [
            *range(0, 30, 3),
            *range(1, 30, 3),
            *range(2, 30, 3),
        ]
        delivers[0]("later")
        assert len(calls) == 2
        assert await queues[0].get() == "later"

    asyncio.run(story())


def test_a_mailbox_of_a_closed_loop_tells_every_sender():
    loop = asyncio.new_event_loop()
    mailbox, told = Mailbox(loop), []
    delivers = [mailbox.into(asyncio.Queue(), lambda n=n: told.append(n)) for n in range(2)]
    loop.close()
    for deliver in delivers:
        deliver("a piece")
    assert told == [0, 1]
