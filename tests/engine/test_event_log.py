"""A live run's log replays to the same actions."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import msgspec
import pytest

from headwater import Cancelled, EngineStopped, HeadwaterError, LoadedModel
from headwater.engine.event_log import FileLog
from headwater.schedule.events import StepDone
from headwater.schedule.replay import Header, replay
from tests.engine.tiny import make_model


@pytest.fixture
def busy(engine, tmp_path):
    """A log of requests from two tenants, with cancels, preemption and choices."""

    def run(**options):
        path = tmp_path / "events.jsonl"
        hw = engine(log=path, kv_memory="40 pages", max_running=8, step_tokens=32, **options)
        draw = random.Random(5)
        shared = [draw.randrange(2, 300) for _ in range(40)]
        running = []
        for at in range(30):
            prompt = shared[: draw.randint(1, 40)] + [draw.randrange(2, 300)] * draw.randint(0, 9)
            running.append(
                hw.submit(
                    prompt,
                    domain=draw.choice("ab"),
                    max_tokens=draw.randint(1, 20),
                    n=draw.choice([1, 3]),
                    ignore_eos=True,
                )
            )
            if at % 4 == 0:
                running[-1].cancel()
            if at % 10 == 5:
                running[-1].result()
        for each in running:
            try:
                each.result()
            except Cancelled:
                continue
        hw.close()
        return path

    return run


@pytest.mark.parametrize("order", ["fcfs", "longest-prefix", "depth-first", "response-ratio"])
@pytest.mark.parametrize("secret", [bytes(32), bytes([2] * 32)], ids=["one", "other"])
def test_a_live_log_replays_to_the_same_actions(busy, order, secret):
    lines = busy(order=order, secret=secret).read_bytes().splitlines()
    replayed = replay(lines)
    assert replayed.difference is None
    assert replayed.events == len(lines) - 1 > 60


def test_the_header_says_what_the_machine_was_built_from(busy):
    header = msgspec.json.decode(busy().read_bytes().splitlines()[0], type=Header)
    recipe = header.recipe
    assert (recipe.pages, recipe.page, recipe.policy, recipe.cache) == (40, 4, "lru", "prefix")
    assert (recipe.settings.running, recipe.settings.step_tokens) == (8, 32)


def test_an_event_that_the_machine_fails_at_fails_in_the_replay(engine, tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    hw = engine(log=path)
    event = StepDone(999, [], [])
    monkeypatch.setattr(hw._engine._runner, "run", lambda *_: hw._engine._handle(event))
    with pytest.raises(EngineStopped, match="step 999 is done"):
        hw.generate("the fox")
    with pytest.raises(ValueError, match="step 999 is done"):
        replay(path.read_bytes().splitlines())


def test_a_torn_last_line_is_passed_over(busy):
    lines = busy().read_bytes().splitlines()
    whole = replay(lines).events
    assert replay([*lines[:-1], lines[-1][:20]]).events == whole - 1
    with pytest.raises(msgspec.DecodeError):
        replay([*lines[:5], lines[5][:20], *lines[6:]])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_ends_the_log_and_not_the_engine(engine, monkeypatch):
    hw = engine()
    log = FileLog.__new__(FileLog)
    log._file = Path("/dev/full").open("wb", buffering=64)  # noqa: SIM115 - the log closes it
    monkeypatch.setattr(hw._engine, "_log", log)
    result = hw.generate("the fox", max_tokens=5, ignore_eos=True)
    assert result.usage.completion_tokens == 5
    assert log._file.closed
    hw.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_writes_nothing_into_the_log(engine, tmp_path):
    path = tmp_path / "events.jsonl"
    hw = engine(log=path)
    hw.generate("the fox", max_tokens=2)
    child = os.fork()
    if child == 0:
        hw._engine._log.close()
        os._exit(0)
    os.waitpid(child, 0)
    hw.close()
    assert replay(path.read_bytes().splitlines()).difference is None


def test_an_empty_log_is_none():
    with pytest.raises(msgspec.DecodeError):
        replay([])


def test_a_log_of_an_unknown_cache_is_a_value_error(busy):
    header = busy().read_bytes().splitlines()[0]
    with pytest.raises(ValueError, match="no cache named 'magic'"):
        replay([header.replace(b'"cache":"prefix"', b'"cache":"magic"')])


def test_another_machine_is_told_apart(busy):
    header, *events = busy().read_bytes().splitlines()
    replayed = replay([header.replace(b'"pages":40', b'"pages":41'), *events])
    assert replayed.difference is not None
    assert replayed.difference.index == replayed.events


def test_a_log_holds_no_secret_and_only_its_owner_reads_it(busy):
    secret = bytes(range(100, 132))
    path = busy(secret=secret)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret.hex().encode() not in path.read_bytes()


def test_a_log_is_never_written_over(engine, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("dear diary")
    with pytest.raises(HeadwaterError, match="cannot be made"):
        engine(log=path)
    assert path.read_text() == "dear diary"


def test_weights_are_replaced_in_the_replay_as_well(engine, tmp_path, home):
    own = LoadedModel.load(make_model(tmp_path / "own", seed=4), "float32", "cpu")
    path = tmp_path / "events.jsonl"
    hw = engine(own, log=path)
    hw.generate("the fox", max_tokens=3)
    hw.replace_weights(own.folder.path, "drain")
    hw.generate("the fox", max_tokens=3)
    hw.close()
    assert replay(path.read_bytes().splitlines()).difference is None
