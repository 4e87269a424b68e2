"""The live engine: one thread owns the machine, the model and the KV pool.

    callers ── Job, Cancelled, Swap, Ask, Order, Close ──> inbox
                                                             |  drained between steps
    callers <── pieces ── jobs <── actions ── machine.handle(event, now)
                            |                     ^
                            └ drawn tokens ── StepRunner.run(step)

Nothing is shared, so nothing is locked but the inbox's end. A cancel takes effect within one step.
With nothing to compute the thread sleeps on its inbox. Whatever goes wrong in the thread ends it:
every request is told so and later ones are refused, because a machine that has missed an event can
no longer vouch for its pages.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakSet

from headwater.cache.check import check, check_idle
from headwater.engine.event_log import EventLog
from headwater.engine.job import Job
from headwater.engine.runner import StepRunner
from headwater.engine.sampling import SamplingParams
from headwater.engine.stats import Stats, Tokens, stats_of
from headwater.errors import BadRequest, EngineStopped, HeadwaterError
from headwater.schedule.events import (
    Action,
    AnyEvent,
    Arrived,
    Cancelled,
    Finish,
    Flushed,
    FlushPrefixes,
    Held,
    HoldEnded,
    HoldPrefix,
    LetGo,
    Reject,
    RunStep,
    StepDone,
    SwapWeights,
    Wake,
    WakeAt,
    WeightsReplaced,
)
from headwater.schedule.machine import Machine
from headwater.schedule.step import Step

CloseMode = Literal["drain", "cancel"]
Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Swap:
    """Replace the weights by calling `put`, when the machine says so."""

    event: WeightsReplaced
    put: Callable[[], None]
    done: Future[None]


@dataclass(frozen=True, slots=True)
class Ask:
    """Look at the machine between two steps, changing nothing."""

    look: Callable[[Machine], Any]
    answer: Future[Any]


@dataclass(frozen=True, slots=True)
class Order:
    """Have the machine handle an event, and tell the one action that answers it."""

    event: HoldPrefix | FlushPrefixes | LetGo
    answer: Future[Held | Flushed | None]


@dataclass(frozen=True, slots=True)
class Close:
    """Finish what runs, or cancel it, then end."""

    mode: CloseMode


Message = Job | Cancelled | Swap | Ask | Order | Close


class Progress(NamedTuple):
    """How many steps were computed, and since when (monotonic seconds) the present one runs."""

    steps: int
    since: float | None


class Engine:
    """Runs a machine's steps in a thread of its own until it is closed or fails."""

    def __init__(
        self, machine: Machine, runner: StepRunner, log: EventLog, *, checked: bool = False
    ) -> None:
        """checked: count all pages again after every event and whenever the engine goes idle."""
        self._machine = machine
        self._runner = runner
        self._log = log
        self._checked = checked
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._gate = threading.Lock()  # held while a message is posted, and to end posting
        self._ended: EngineStopped | None = None
        self._closing = False
        self._jobs: dict[int, Job] = {}
        self._step: tuple[Step, dict[int, SamplingParams]] | None = None
        self._swap: Swap | None = None
        self._order: Order | None = None
        self._progress = Progress(0, None)
        self._wake: float | None = None
        self._requests = 0
        self._tokens = Tokens()
        # A daemon, since a program that forgets to close its engine must still be able to end.
        self._thread = threading.Thread(target=self._run, name="headwater", daemon=True)
        self._thread.start()
        _engines.add(self)

    # The callers' side

    @property
    def healthy(self) -> bool:
        return self._ended is None and self._thread.is_alive()

    def post(self, message: Job | Swap | Ask | Order) -> None:
        """Put a message into the inbox. Raises EngineStopped when it would not be answered."""
        with self._gate:
            if self._ended is not None:
                raise EngineStopped(str(self._ended)) from self._ended.__cause__
            self._inbox.put(message)

    def cancel(self, request: int) -> None:
        """Cancel a request; one that has ended, or whose engine has, stays as it is.

        Without the gate, since a handle that is collected calls it, wherever that may happen.
        """
        if self._thread.is_alive():  # also when closed to others, as long as it drains
            self._inbox.put(Cancelled(request))

    def stats(self) -> Stats:
        """Numbers of one moment between two steps. Raises EngineStopped when there are none."""
        return self.look(lambda machine: stats_of(machine, self._requests, self._tokens))

    def look(self, look: Callable[[Machine], Seen]) -> Seen:
        """What is seen of the machine between two steps, by the thread that owns it.

        Raises EngineStopped when nobody looks any more, or what `look` raised.
        """
        answer: Future[Seen] = Future()
        self.post(Ask(look, answer))
        return answer.result()

    def order(self, event: HoldPrefix | FlushPrefixes | LetGo) -> Held | Flushed | None:
        """Have an event handled between two steps. Raises EngineStopped."""
        answer: Future[Held | Flushed | None] = Future()
        self.post(Order(event, answer))
        return answer.result()

    @property
    def progress(self) -> Progress:
        """Whether steps are being computed. Read from any thread."""
        return self._progress

    def close(self, mode: CloseMode) -> None:
        """Take no more messages, end the thread and wait for it.

        An engine that drains can still be told to cancel.
        """
        with self._gate:
            self._ended = self._ended or EngineStopped("The engine is closed.")
        if self._thread.is_alive():
            self._inbox.put(Close(mode))
        if self._thread is not threading.current_thread():
            self._thread.join()

    def forked(self) -> None:
        """This is a child of the engine's process: its thread is not here, and never answers."""
        reason = EngineStopped("The engine runs in the process that forked; make one in this one.")
        self._gate = threading.Lock()  # whoever held it is not here, either
        self._ended = self._ended or reason
        self._log.forked()
        for job in list(self._jobs.values()):
            job.deliver(self._ended)
        with suppress(Empty):
            while True:
                message = self._inbox.get_nowait()
                if isinstance(message, Job):
                    message.deliver(self._ended)

    # The thread's side

    def _run(self) -> None:
        reason = EngineStopped("The engine is closed.")
        try:
            while not (self._closing and self._machine.is_idle):
                self._wait()
                # One at a time: a message is in the inbox, or known to `_end` before it can fail.
                while not self._inbox.empty():  # this thread alone takes messages out
                    self._take(self._inbox.get())
                self._run_step()
        except BaseException as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            reason = EngineStopped(f"The engine has stopped: {type(error).__name__}: {error}")
            reason.__cause__ = error
        self._end(reason)

    def _wait(self) -> None:
        """Sleep while there is nothing to compute; wake the machine when it wanted to be woken."""
        if self._step is None and self._inbox.empty():
            self._sleep()
        if self._wake is not None and time.monotonic() >= self._wake:
            self._wake = None
            self._handle(Wake())

    def _sleep(self) -> None:
        """Until a message comes, or the machine wants to be woken."""
        waiting = self._machine.counts.waiting
        if waiting and not self._machine.has_transfers and self._wake is None:
            raise RuntimeError(f"{waiting} requests wait and nothing runs")
        timeout = None if self._wake is None else max(self._wake - time.monotonic(), 0.0)
        try:
            message = self._inbox.get(timeout=timeout)
        except Empty:
            return
        self._take(message)

    def _take(self, message: Message) -> None:
        match message:
            case Job():
                self._jobs[message.request.id] = message
                self._handle(Arrived(message.request))
            case Cancelled():
                self._handle(message)
            case Swap():
                self._swap = message
                self._handle(message.event)
            case Ask(look, answer):
                try:
                    answer.set_result(look(self._machine))
                except Exception as error:  # noqa: BLE001 - it is the asker's, and changed nothing
                    answer.set_exception(error)
            case Order():
                self._order = message
                self._handle(message.event)
                if isinstance(message.event, LetGo):
                    message.answer.set_result(None)
                self._order = None
            case Close():
                self._closing = True
                if message.mode == "cancel":
                    for request in list(self._jobs):
                        self._handle(Cancelled(request))

    def _run_step(self) -> None:
        if self._step is None:
            return
        (step, params), self._step = self._step, None
        steps = self._progress.steps
        self._progress = Progress(steps, time.monotonic())
        drawn = self._runner.run(step, params)
        self._progress = Progress(steps + 1, None)
        stopped = []
        for sample, token, logprobs in zip(step.samples, drawn.tokens, drawn.logprobs, strict=True):
            job = self._jobs.get(sample.request)  # None: cancelled while the step was on its way
            stopped.append(job is not None and job.drawn(sample.choice, token, logprobs))
        for score, scored in zip(step.scores, drawn.scored, strict=True):
            job = self._jobs.get(score.request)
            if job is not None:
                job.scored(score.position, scored)
        self._handle(StepDone(step.id, drawn.tokens, stopped))

    def _handle(self, event: AnyEvent) -> None:
        now = time.monotonic()
        try:
            actions = self._machine.handle(event, now)
        except BaseException:
            self._log.write(now, event, ())  # its replay fails here, too
            raise
        self._log.write(now, event, actions)
        for action in actions:
            self._carry_out(action)
        if self._checked:
            if self._machine.is_idle:
                check_idle(self._machine.cache, self._machine.holds)
            else:
                check(self._machine.cache)

    def _carry_out(self, action: Action) -> None:
        match action:
            case RunStep(step):
                params = {each.request: self._jobs[each.request].params for each in step.samples}
                for scored in step.scores:
                    params[scored.request] = self._jobs[scored.request].params
                self._step = step, params
            case Finish():
                report = self._jobs[action.request].finish(action)
                if report is not None:
                    del self._jobs[action.request]
                    self._requests += 1
                    self._tokens.add(report)
            case Reject():
                self._jobs.pop(action.request).deliver(BadRequest(action.why))
            case Held() | Flushed():
                assert self._order is not None
                self._order.answer.set_result(action)
            case HoldEnded():
                pass  # who holds what is asked of the machine
            case SwapWeights():
                assert self._swap is not None
                self._swap.put()
                self._swap.done.set_result(None)
                self._swap = None
            case WakeAt():
                self._wake = action.time
            case _:
                raise TypeError(f"nothing here can carry out {type(action).__name__}")

    def _end(self, reason: EngineStopped) -> None:
        """Refuse further messages and tell everybody who waits."""
        with self._gate:
            self._ended = reason
        self._log.close()
        waiting: list[Message] = list(self._jobs.values())
        if self._swap is not None:
            waiting.append(self._swap)
        if self._order is not None and not self._order.answer.done():
            waiting.append(self._order)
        while not self._inbox.empty():
            waiting.append(self._inbox.get())
        for message in waiting:
            _fail(message, reason)


_engines: WeakSet[Engine] = WeakSet()


def _forked() -> None:
    for engine in list(_engines):
        engine.forked()


os.register_at_fork(after_in_child=_forked)


def _fail(message: Message, reason: HeadwaterError) -> None:
    """Tell who waits for a message that it will not be answered."""
    match message:
        case Job():
            message.deliver(reason)
        case Swap():
            message.done.set_exception(reason)
        case Ask(_, answer) | Order(_, answer):
            answer.set_exception(reason)
