"""A machine on a stage: events one by one, by hand, under all laws of the random driver.

What steps read, what is answered, what is accounted for and that the log replays is checked as it
is there; a story only says what it is about.
"""

from __future__ import annotations

import random

from headwater.cache.tokens import pack
from headwater.schedule.account import Account
from headwater.schedule.events import Action, Finish, Reject, Request, RunStep
from headwater.schedule.order import Order
from headwater.schedule.settings import Settings
from headwater.schedule.step import Step
from headwater.testing.fake_model import Language
from headwater.testing.fake_tier import FakeTier
from headwater.testing.machine_driver import Asked, MachineDriver
from headwater.testing.machine_shape import Shape

VOCABULARY = 1000


class Shelf(FakeTier):
    """A tier that offers all it has; a test decides what it keeps and how loads end."""

    keeps = True

    def offers(self, namespace, key, ready):
        return self.has(namespace, key, ready)

    def wants(self):
        return self.keeps


class Stage(MachineDriver):
    def __init__(self, *, page=4, pages=64, tier=False, ghost_tokens=None, **settings):
        settings = {"context": 200, "running": 8, "step_tokens": 64, "growth_pages": 0, **settings}
        shape = Shape(
            page=page,
            pages=pages,
            ghost_tokens=ghost_tokens,
            settings=Settings(**settings),
            language=Language(VOCABULARY, stop_every=0),
            tier=tier,
        )
        super().__init__(random.Random(0), shape, tier_class=Shelf)
        self.steps: list[Step] = []
        self.actions: list[Action] = []
        self.rejects: dict[int, str] = {}

    # Doing

    def send(self, prompt, max_tokens=1, **about) -> int:
        """A request arrives; its number."""
        self._asked += 1
        self.ask(Request(id=self._asked, prompt=pack(prompt), max_tokens=max_tokens, **about))
        return self._asked

    def deliver(self, event):
        self.actions = []
        super().deliver(event)

    def _carry_out(self, action):
        self.actions.append(action)
        if isinstance(action, RunStep):
            self.steps.append(action.step)
        if isinstance(action, Reject):
            self.rejects[action.request] = action.why
        super()._carry_out(action)

    def tick(self, steps=1) -> None:
        """So many steps end."""
        for _ in range(steps):
            self.end_step()

    def play(self) -> None:
        """Everything goes on to its end, transfers as they should."""
        while not self.machine.is_idle:
            if self.tier.loads:
                self.deliver(self.tier.deliver_load(self.tier.loads[0], 10**6))
            elif self.tier.stores:
                self.deliver(self.tier.end_store(self.tier.stores[0]))
            else:
                self.end_step()
        self.settle()

    def serve(self, prompt, max_tokens=1, **about) -> Account:
        """One request from beginning to end; its account."""
        number = self.send(prompt, max_tokens, **about)
        self.play()
        return self.account(number)

    # Looking

    @property
    def asked(self) -> dict[int, Asked]:
        return {asked.request.id: asked for asked in [*self.finished, *self.live.values()]}

    def account(self, number, choice=0) -> Account:
        return self.ending(number, choice).account

    def ending(self, number, choice=0) -> Finish:
        return self.asked[number].ended[choice]

    def text(self, number, choice=0) -> list[int]:
        return self.asked[number].texts[choice]

    @property
    def leases(self) -> int:
        return len(self.machine.cache.leases)

    def sequences(self) -> list[int]:
        """The requests that the step samples for, in the order of its rows."""
        return [
            sample.request for sample in sorted(self.step.samples, key=lambda sample: sample.row)
        ]


def tokens(length, kind=1) -> list[int]:
    """A prompt; those of different kinds share nothing."""
    return [kind * 10_000 + position for position in range(length)]


ORDERS = list(Order)
