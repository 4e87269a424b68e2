"""Random events for a small scheduler, with everything it says held against a simulated engine.

The driver plays the world: requests that arrive and are given up, an engine that takes its time, a
tier that forgets, weights that change. It believes nothing: what steps read is verified slot by
slot, answers are compared with those of the same request alone, accounts must add up, and the whole
log must replay to the same actions. Every choice comes from the `random.Random` that is passed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from headwater.cache.check import check, check_idle
from headwater.cache.listener import Silence
from headwater.cache.pages import PagePool
from headwater.cache.tokens import WIDTH, count, pack
from headwater.schedule.events import (
    Action,
    AnyAction,
    AnyEvent,
    Arrived,
    Cancelled,
    CancelLoad,
    Event,
    Finish,
    Flushed,
    FlushPrefixes,
    Held,
    HoldEnded,
    HoldPrefix,
    LetGo,
    Reject,
    Request,
    RunStep,
    StartLoad,
    StartStore,
    StepDone,
    SwapWeights,
    Wake,
    WakeAt,
    WeightsReplaced,
)
from headwater.schedule.ladder import Ladder, NoTiers
from headwater.schedule.step import Step
from headwater.testing import alone
from headwater.testing.fake_model import Drawn, EngineMemory, FakeModel
from headwater.testing.fake_tier import FakeTier, RecordedLadder
from headwater.testing.machine_shape import Shape, machine_of, namespace_of

PATIENCE_WITH_STEPS = 4_000
"""Steps in which nobody finishes before the driver speaks of a livelock."""


class Wrong(AssertionError):
    """The machine said or did something that cannot be; the message says what."""


@dataclass
class Asked:
    """A request as its caller sees it: the tokens of each choice, and what has ended how."""

    request: Request
    texts: list[list[int]]
    ended: dict[int, Finish] = field(default_factory=dict)
    is_given_up: bool = False
    answers: list[list[int]] | None = None  # what it would answer alone, once that was asked


@dataclass(frozen=True)
class Expected:
    """What the next step must look like, if only the end of this one happens."""

    samples: list[tuple[int, int, int]]
    repeat: int


class MachineDriver:
    """Lets one random thing after another happen to a machine, and watches it."""

    def __init__(
        self, rng: random.Random, shape: Shape, *, tier_class: type[FakeTier] = FakeTier
    ) -> None:
        self.rng = rng
        self.shape = shape
        self.memory = EngineMemory(shape.pages, shape.page)
        self.model = FakeModel(self.memory, namespace_of, "w0", shape.language)
        self.tier = tier_class(rng, self.model)
        ladder: Ladder = self.tier if shape.tier else NoTiers()
        self.machine = machine_of(shape, self.memory.pool, self.memory, ladder)
        self.now = 0.0
        self.live: dict[int, Asked] = {}
        self.finished: list[Asked] = []
        self.rejected = 0
        self.cached_tokens = 0
        self.log: list[tuple[bytes, float, bytes]] = []  # (event, now, actions)
        self._asked = 0
        self.step: Step | None = None  # that runs
        self._digests: list[int] | None = None  # of the step, once the engine has computed it
        self._is_disturbed = False  # something besides its end has happened during the step
        self._expected: Expected | None = None
        self._swap: WeightsReplaced | None = None
        self._swaps = 0
        self._steps_without_end = 0
        self._prompts = [self._fresh(rng.randint(1, shape.settings.context)) for _ in range(3)]
        self.holds: dict[int, Held] = {}
        self._knowers: dict[tuple[str, str, bytes], int | None] = {}

    def run(self, requests: int) -> None:
        """So many requests from the first to the last; then the baseline must be reached."""
        while self._asked < requests:
            self.something()
        while not self.machine.is_idle:
            self.something(arrivals=False)
        self.settle()
        for number in list(self.holds):
            self.holds.pop(number)
            self.deliver(LetGo(number))
        self.settle()

    # What can happen

    def something(self, *, arrivals: bool = True) -> None:
        """One event, of those that can happen now."""
        rng = self.rng
        can: dict[Callable[[], None], float] = {self._wake: 0.02}
        if arrivals:
            can[self._arrive] = 0.6
        if self.step is not None:
            can[self.end_step] = 1.0
        if self.tier.loads:
            can[self._end_load] = 0.25
        if self.tier.stores:
            can[self._end_store] = 0.25
        if self.live:
            can[self._cancel] = self.shape.cancels
        if arrivals and self.shape.weights:
            can[self._replace_weights] = 0.03
        if arrivals and self.shape.control:
            can |= {self._hold: 0.05, self._let_go: 0.03, self._flush: 0.03, self._forecast: 0.05}
        happens = rng.choices(list(can), weights=list(can.values()))[0]
        happens()

    def _arrive(self) -> None:
        for _ in range(self.rng.choice((1, 1, 1, 1, 6))):
            self.ask(self._request())

    def _request(self) -> Request:
        rng, shape = self.rng, self.shape
        self._asked += 1
        place = rng.randrange(shape.namespaces)
        return Request(
            id=self._asked,
            prompt=self._prompt(),
            max_tokens=rng.choice((1, 2, rng.randint(1, shape.settings.context))),
            domain="ab"[place % 2],
            salt="" if place < 2 else "s",
            choices=rng.choice((1, 1, 1, shape.most_choices)),
            stop_tokens=(0,) if rng.random() < 0.2 else (),
            priority=rng.choice((0, 0, 0, 1)),
            reads=rng.random() < 0.95,
            stores=rng.random() < 0.95,
        )

    def _prompt(self) -> bytes:
        """Something seen before, cut somewhere (often at a page), with something new behind."""
        rng, page = self.rng, self.shape.page
        seen = rng.choice(self._prompts)
        keep = rng.choice((count(seen), rng.randint(0, count(seen)), rng.randint(0, 3) * page))
        fresh = rng.choice((0, 0, 1, page, rng.randrange(self.shape.settings.context)))
        longest = self.shape.settings.context + (rng.random() < 0.02)
        prompt = (seen[: keep * WIDTH] + self._fresh(fresh))[: longest * WIDTH] or self._fresh(1)
        self._remember(prompt)
        return prompt

    def _remember(self, text: bytes) -> None:
        if len(self._prompts) < 10:
            self._prompts.append(text)
        else:
            self._prompts[self.rng.randrange(10)] = text

    def _fresh(self, length: int) -> bytes:
        return pack([self.rng.randrange(self.shape.language.vocabulary) for _ in range(length)])

    def end_step(self) -> None:
        """The engine is done with the step that runs."""
        step, digests = self.step, self._digests
        assert step is not None
        if digests is None:
            digests = self.model.run(step)
        else:
            self.model.confirm(step, digests)
        drawn = self.model.draw(step, digests)
        for sample, one in zip(step.samples, drawn, strict=True):
            asked = self.live.get(sample.request)
            if asked is not None:
                asked.texts[sample.choice].append(one.token)
                self._know(asked.request, sample.choice)
        self.step = self._digests = None
        self._expected = self._after(step, drawn)
        self.deliver(StepDone(step.id, [d.token for d in drawn], [d.stopped for d in drawn]))

    def _after(self, step: Step, drawn: list[Drawn]) -> Expected | None:
        """What `repeat` promises of the next step, given what was drawn in this one."""
        if step.repeat == 0 or self._is_disturbed:
            return None
        for sample, one in zip(step.samples, drawn, strict=True):
            asked = self.live.get(sample.request)
            if asked is None or one.stopped or one.token in asked.request.stop_tokens:
                return None
        samples = [(s.request, s.choice, s.position + 1) for s in step.samples]
        return Expected(samples, step.repeat - 1)

    def _end_load(self) -> None:
        self.deliver(self.tier.end_load(self.rng.choice(self.tier.loads)))

    def _end_store(self) -> None:
        self.deliver(self.tier.end_store(self.rng.choice(self.tier.stores)))

    def _cancel(self) -> None:
        self.cancel(self.rng.choice(list(self.live)))

    def cancel(self, request: int) -> None:
        self.live[request].is_given_up = True
        self.deliver(Cancelled(request))
        if request in self.live and self.step is None:
            raise Wrong(f"request {request} was cancelled and lives on")

    def _replace_weights(self) -> None:
        self.replace_weights(self.rng.choice(("restart", "drain")))

    def replace_weights(self, mode: Literal["restart", "drain"]) -> None:
        self._swaps += 1
        self._swap = WeightsReplaced(f"w{self._swaps}", mode)
        self.deliver(self._swap)

    def _wake(self) -> None:
        self.deliver(Wake())

    def _hold(self) -> None:
        rng, number = self.rng, self.rng.randrange(6)
        place = rng.randrange(self.shape.namespaces)
        self.deliver(
            HoldPrefix(
                hold=number,
                prompt=self._prompt(),
                until=self.now + rng.choice((0.0, 5.0, 200.0)),
                pages=rng.choice((0, 2, self.shape.pages)),
                domain="ab"[place % 2],
                salt="" if place < 2 else "s",
            )
        )

    def _let_go(self) -> None:
        self.holds.pop(number := self.rng.randrange(6), None)
        self.deliver(LetGo(number))

    def _flush(self) -> None:
        rng = self.rng
        prompt = self._prompt()
        prefix = prompt[: rng.randrange(count(prompt) + 1) * WIDTH]
        self.deliver(FlushPrefixes(1, prefix, rng.choice("ab"), rng.choice((None, "", "s"))))

    def _forecast(self) -> None:
        """To ask changes nothing: the replay, which is not asked, does the same."""
        prompt = self._prompt()
        found = self.machine.forecast(prompt, self.rng.choice("ab"), "")
        if not 0 <= found.ready < count(prompt):
            raise Wrong(f"{found} of {count(prompt)} tokens")

    # What the machine makes of it

    def ask(self, request: Request) -> None:
        self.live[request.id] = asked = Asked(request, [[] for _ in range(request.choices)])
        self.model.begin(request)
        self._know(asked.request, None)
        self.deliver(Arrived(request))

    def deliver(self, event: Event) -> None:
        """Let an event happen; carry out and judge what follows."""
        self.now += self.rng.random()
        recorded = msgspec.msgpack.encode(event)
        self._is_disturbed = self._is_disturbed or not isinstance(event, StepDone)
        actions = self.machine.handle(event, self.now)
        self.log.append((recorded, self.now, msgspec.msgpack.encode(actions)))
        for action in actions:
            self._carry_out(action)
        self._expected = None
        check(self.machine.cache)
        self._check_progress()

    def _carry_out(self, action: Action) -> None:
        match action:
            case RunStep(step=step):
                self._begin_step(step)
            case StartLoad():
                self.tier.start_load(action, self.live[action.request].request.prompt)
            case CancelLoad():
                self.tier.cancel_load(action)
            case StartStore():
                self.tier.start_store(action)
            case SwapWeights(epoch=epoch):
                self._swap_weights(epoch)
            case Finish():
                self._ended(action)
            case Reject():
                self._rejected(action)
            case Held():
                self._held(action)
            case HoldEnded(hold=number):
                if self.holds.pop(number, None) is None:
                    raise Wrong(f"hold {number} ends and was none")
            case Flushed():
                if action.in_use and self.machine.is_idle and not self.holds:
                    raise Wrong(f"{action}, and nobody uses anything")
            case WakeAt(time=at):
                if at <= self.now:
                    raise Wrong(f"at {self.now} it wants to be woken at {at}")
            case _:
                raise Wrong(f"nobody asked for {action}")

    def _held(self, held: Held) -> None:
        self.holds.pop(held.hold, None)
        if held.tokens:
            self.holds[held.hold] = held
        if not 0 <= held.tokens <= held.pages * self.shape.page:
            raise Wrong(f"{held}")
        if sum(each.pages for each in self.holds.values()) > 2 * self.shape.pages:
            raise Wrong("two domains hold more than they may")

    def _begin_step(self, step: Step) -> None:
        settings = self.shape.settings
        if self.step is not None:
            raise Wrong(f"step {step.id} is started while {self.step.id} runs")
        if len(step.tokens) > settings.step_tokens:
            raise Wrong(f"step {step.id} has {len(step.tokens)} rows of {settings.step_tokens}")
        self._check_repeat(step)
        self.step = step
        self._is_disturbed = False
        # An engine computes early or late in the time a step takes; what is there must be the same.
        self._digests = self.model.run(step) if self.rng.random() < 0.5 else None
        self._steps_without_end += 1

    def _check_repeat(self, step: Step) -> None:
        expected = self._expected
        if expected is None:
            return
        samples = [(s.request, s.choice, s.position) for s in step.samples]
        same = samples == expected.samples and len(step.tokens) == len(samples)
        if not same or step.repeat < expected.repeat or step.copies:
            raise Wrong(f"{expected} was promised, and the step is {samples}, {step.repeat}")

    def _swap_weights(self, epoch: str) -> None:
        swap = self._swap
        if swap is None or swap.epoch != epoch or self.machine.epoch != epoch:
            raise Wrong(f"weights {epoch} are put in place, and nobody has replaced them")
        if self.step is not None:
            raise Wrong("weights are replaced under a step")
        if swap.mode == "drain" and any(self._is_halfway(asked) for asked in self.live.values()):
            raise Wrong("weights are replaced under an answer that should have ended first")
        self._swap = None
        self.model.swap(epoch)

    @staticmethod
    def _is_halfway(asked: Asked) -> bool:
        return any(asked.texts)

    def _rejected(self, reject: Reject) -> None:
        asked = self.live.pop(reject.request)
        tokens, settings = count(asked.request.prompt), self.shape.settings
        if tokens <= min(settings.context, self._room(asked.request)):
            raise Wrong(f"{asked.request} could have run: {reject.why}")
        self.rejected += 1

    def _room(self, request: Request) -> int:
        """Tokens for which there is room when others have their floors."""
        return self.machine.cache.room(request.domain) * self.shape.page

    def _ended(self, finish: Finish) -> None:
        asked = self.live[finish.request]
        if finish.choice in asked.ended:
            raise Wrong(f"choice {finish.choice} of request {finish.request} ends twice")
        asked.ended[finish.choice] = finish
        self._check_answer(asked, finish)
        if finish.choice == 0:
            self._check_account(asked, finish)
        self._remember(asked.request.prompt + pack(asked.texts[finish.choice]))
        self._steps_without_end = 0
        if len(asked.ended) == asked.request.choices:
            self.finished.append(self.live.pop(finish.request))

    # What must be true of it

    def _check_answer(self, asked: Asked, finish: Finish) -> None:
        """The tokens are those of the request alone, all of them or up to where it was cut off."""
        request, text = asked.request, asked.texts[finish.choice]
        settings = self.shape.settings
        if asked.answers is None:
            asked.answers = alone.answers(request, settings.context, self.shape.language)
        answer = asked.answers[finish.choice]
        known = count(request.prompt) + len(text)
        outgrown = finish.reason == "length" and known > self._room(request)
        if finish.reason == "cancelled" and not asked.is_given_up:
            raise Wrong(f"request {request.id} was not cancelled")
        if outgrown or finish.reason == "cancelled":
            answer = answer[: len(text)]
        if text != answer:
            raise Wrong(f"choice {finish.choice} of {request.id} is {text}, alone it is {answer}")
        if finish.account.generated != len(text) and not asked.is_given_up:
            raise Wrong(f"{len(text)} tokens drawn, {finish.account.generated} accounted for")

    def _check_account(self, asked: Asked, finish: Finish) -> None:
        account, prompt = finish.account, asked.request.prompt
        total = account.cached + account.loaded + account.computed
        complete = finish.reason != "cancelled"
        if account.prompt != count(prompt) or total > account.prompt:
            raise Wrong(f"request {asked.request.id} of {count(prompt)} tokens has {account}")
        if complete and total != account.prompt:
            raise Wrong(f"request {asked.request.id}: {total} of {account.prompt} in {account}")
        if not asked.request.reads and account.cached + account.loaded:
            raise Wrong(f"request {asked.request.id} was not to read, and did: {account}")
        if account.cached > self._known_to_others(asked.request):
            raise Wrong(f"request {asked.request.id} hits what nobody in its namespace has said")
        self.cached_tokens += account.cached

    def _know(self, request: Request, choice: int | None) -> None:
        """Note who in a namespace has had which prefixes: one request, or (None) several."""
        if not request.stores:
            return
        prompt = request.prompt
        if choice is not None:
            text = prompt + pack(self.live[request.id].texts[choice])
            ends = [len(text)]
        else:
            text, ends = prompt, list(range(WIDTH, len(prompt) + 1, WIDTH))
        for end in ends:
            prefix = (request.domain, request.salt, text[:end])
            if self._knowers.setdefault(prefix, request.id) != request.id:
                self._knowers[prefix] = None

    def _known_to_others(self, request: Request) -> int:
        """How much of a prompt somebody else in its namespace has had too."""
        prompt = request.prompt
        known = 0
        while known < count(prompt):
            prefix = (request.domain, request.salt, prompt[: (known + 1) * WIDTH])
            if self._knowers.get(prefix, request.id) == request.id:
                break
            known += 1
        return known

    def _check_progress(self) -> None:
        """Somebody is at work, or nobody wants anything."""
        at_work = self.step is not None or self.tier.loads or self.tier.stores
        if not at_work and (self.live or not self.machine.is_idle):
            raise Wrong(f"nothing runs and {len(self.live)} requests are unfinished")
        if self._steps_without_end > PATIENCE_WITH_STEPS:
            raise Wrong(f"nobody has finished in {self._steps_without_end} steps")

    def settle(self) -> None:
        """Everybody has left: nothing is leased, nobody waits, and the log replays."""
        if len(self.holds) != self.machine.holds:
            raise Wrong(f"{self.holds} are promised, {self.machine.holds} held")
        check_idle(self.machine.cache, self.machine.holds)
        if self.live or self.machine.counts != (0, 0, 0):
            raise Wrong(f"{self.machine.counts} run, load and wait at idle")
        self.replay()

    def replay(self) -> None:
        """The log makes a fresh machine do the same, though nobody checks that one in between."""
        pool = PagePool(self.shape.pages, self.shape.page)
        ladder: Ladder = RecordedLadder(self.tier.answers) if self.shape.tier else NoTiers()
        machine = machine_of(self.shape, pool, Silence(), ladder)
        events = msgspec.msgpack.Decoder(AnyEvent)
        actions_of = msgspec.msgpack.Decoder(list[AnyAction])
        for recorded, now, expected in self.log:
            actions = machine.handle(events.decode(recorded), now)
            if msgspec.msgpack.encode(actions) != expected:
                was = actions_of.decode(expected)
                raise Wrong(f"at {now} the replay does {actions}, the first run did {was}")
