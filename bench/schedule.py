"""The state machine's own time between two steps of the engine.

What it costs to decide is paid while the device waits. So one step is timed with everything busy: a
full batch, a long queue in the dearest order, and a tree that changes every step, since in every
step somebody fills a page and, on average, one sequence finishes and another is admitted.
"""

from __future__ import annotations

import random
import statistics
import time

from bench.options import Options
from bench.report import Row
from headwater.cache.pages import PagePool
from headwater.cache.policies import LRU
from headwater.cache.tokens import pack
from headwater.schedule.events import Action, Arrived, Finish, Request, RunStep, StepDone
from headwater.schedule.machine import Machine
from headwater.schedule.order import Order
from headwater.schedule.settings import Settings
from headwater.schedule.step import Step

RUNNING, WAITING = 256, 1_000
GROUPS, SHARED, OWN = 32, 512, 64
STEPS = 300


def run(options: Options) -> list[Row]:
    options.say(f"schedule: {RUNNING} running, {WAITING} waiting")
    load = Load(random.Random(0))
    cache = load.machine.cache
    times: list[float] = []
    changes = 0
    for _ in range(STEPS):
        before = cache.cached, cache.evicted
        times.append(load.step())
        changes += before != (cache.cached, cache.evicted)
        load.refill()
    times.sort()
    running, _, waiting = load.machine.counts
    how = (
        f"handle(StepDone) until its RunStep: {running} running, {waiting} waiting, longest-prefix "
        f"order, the cached pages changed in {changes} of {STEPS} steps"
    )
    return [
        Row("schedule.step_ms", statistics.median(times) * 1e3, "ms", "", f"{how}; median"),
        Row(
            "schedule.step_p99_ms",
            times[len(times) * 99 // 100] * 1e3,
            "ms",
            "",
            f"{how}; 99th percentile",
        ),
    ]


class Load:
    """A machine in a steady state, and an engine that draws tokens at random in no time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._prefixes = [self._random(SHARED) for _ in range(GROUPS)]
        self._requests = 0
        self._now = 0.0
        self._step: Step | None = None
        # Room for the running sequences and some history, not for all: the pool evicts as it would.
        self.machine = Machine(
            PagePool((GROUPS * SHARED + RUNNING * (OWN + 2 * RUNNING)) // 16, 16),
            LRU(),
            lambda epoch, domain, salt: f"{epoch}/{domain}/{salt}".encode(),
            Settings(context=8192, running=RUNNING, order=Order.longest_prefix),
        )
        # The first ones end one a step, and so does everyone after them.
        for i in range(RUNNING):
            self._arrive(RUNNING + i)
        self.refill()
        while self.machine.counts[0] < RUNNING or self._requests < 2 * RUNNING + WAITING:
            self.step()
            self.refill()

    def refill(self) -> None:
        """Let requests arrive until the queue has its length again. Not timed."""
        while self.machine.counts[2] < WAITING:
            self._arrive(RUNNING)

    def step(self) -> float:
        """Seconds the machine takes from the end of a step to the next one."""
        step = self._step
        assert step is not None, "the machine has stopped"
        drawn = [self._rng.randrange(100, 40_000) for _ in step.samples]
        done = StepDone(step.id, drawn, [False] * len(drawn))
        self._now += 0.01
        start = time.perf_counter()
        actions = self.machine.handle(done, self._now)
        seconds = time.perf_counter() - start
        self._carry_out(actions)
        return seconds

    def _arrive(self, max_tokens: int) -> None:
        self._requests += 1
        prompt = self._prefixes[self._rng.randrange(GROUPS)] + self._random(OWN)
        request = Request(id=self._requests, prompt=pack(prompt), max_tokens=max_tokens)
        self._now += 1e-6
        self._carry_out(self.machine.handle(Arrived(request), self._now))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, RunStep):
                self._step = action.step
            else:
                assert isinstance(action, Finish), action

    def _random(self, size: int) -> list[int]:
        return [self._rng.randrange(100, 40_000) for _ in range(size)]
