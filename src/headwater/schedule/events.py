"""What happens to the state machine (events) and what it wants done (actions).

Both are plain data with a tag, so that a live run can be logged and replayed to the same actions.
Times are seconds on the caller's clock; the machine owns none.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.schedule.account import Account
from headwater.schedule.step import SlotRun, Step


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants generated.

    prompt: token ids as packed int32 (`headwater.cache.tokens.pack`).
    domain, salt: the sharing domain (the tenant) and the caller's narrowing of it.
    stop_tokens: ids that end a choice (the model's end-of-sequence ids, unless ignored).
    priority: higher runs first.
    reads: cached KV may be reused. stores: what is computed may be reused by others; where it may
        not, further choices compute the prompt anew.
    scores: the log-probabilities of the prompt's own tokens are wanted. Logits are not cached, so
        such a request must not read.
    """

    id: int
    prompt: bytes
    max_tokens: int
    domain: str = ""
    salt: str = ""
    choices: int = 1
    stop_tokens: tuple[int, ...] = ()
    priority: int = 0
    reads: bool = True
    stores: bool = True
    scores: bool = False


class Event(msgspec.Struct, frozen=True, tag=True):
    """Something that happened."""


class Arrived(Event, frozen=True):
    request: Request


class StepDone(Event, frozen=True):
    """The step's KV is written. tokens[i] and stopped[i] belong to samples[i] of the step.

    `stopped` says that the token completed a stop string, which only the edge can see: the pure
    machine knows no text. Ids in `stop_tokens` it sees itself.
    """

    step: int
    tokens: list[int]
    stopped: list[bool]


class LoadDone(Event, frozen=True):
    """`tokens` of the asked range were verified and written, counted from its start."""

    load: int
    tokens: int


class LoadFailed(Event, frozen=True):
    load: int
    why: str


class StoreDone(Event, frozen=True):
    store: int


class Cancelled(Event, frozen=True):
    request: int


class WeightsReplaced(Event, frozen=True):
    """New weights are at hand. `epoch` names them (random or a digest, never a counter).

    restart: swap now, running requests are prefilled again under the new weights.
    drain: admit nothing, swap when the running requests are done.
    """

    epoch: str
    mode: Literal["restart", "drain"]


class HoldPrefix(Event, frozen=True):
    """Keep what is cached of a prompt until a time, against `pages` that its domain may hold."""

    hold: int
    prompt: bytes
    until: float
    pages: int
    domain: str = ""
    salt: str = ""


class LetGo(Event, frozen=True):
    """End a hold before its time. One that has ended already does nothing."""

    hold: int


class FlushPrefixes(Event, frozen=True):
    """Forget the prompts of a domain that begin with `prefix`, in every salt when that is None.

    Holds of the domain that end within it are ended first.
    """

    flush: int
    prefix: bytes
    domain: str = ""
    salt: str | None = None


class Wake(Event, frozen=True):
    """The time asked for by WakeAt has come."""


class Action(msgspec.Struct, frozen=True, tag=True):
    """Something to do."""


class RunStep(Action, frozen=True):
    step: Step


class StartLoad(Action, frozen=True):
    """Load the KV of positions [begin, end) of a request's prompt into `slots`."""

    load: int
    request: int
    namespace: bytes
    tier: str
    begin: int
    end: int
    slots: tuple[SlotRun, ...]


class CancelLoad(Action, frozen=True):
    """Nobody waits for the load any more. Its slots stay reserved until it is done or failed."""

    load: int


class StartStore(Action, frozen=True):
    """Store the KV of positions [begin, end) of the prefix `tokens`, which lies in `slots`."""

    store: int
    namespace: bytes
    tier: str
    tokens: bytes
    begin: int
    end: int
    slots: tuple[SlotRun, ...]


class SwapWeights(Action, frozen=True):
    """Put the weights named `epoch` in place now. No step is running."""

    epoch: str


FinishReason = Literal["stop", "length", "cancelled"]


class Finish(Action, frozen=True):
    """One choice of a request is complete; `account` says what its cache did."""

    request: int
    choice: int
    reason: FinishReason
    account: Account


class Reject(Action, frozen=True):
    """The request can never run; `why` is one sentence for its caller."""

    request: int
    why: str


class Held(Action, frozen=True):
    """The answer to a HoldPrefix: how many tokens are kept, in how many pages. None may be."""

    hold: int
    tokens: int
    pages: int


HoldEnd = Literal["expired", "needed", "flushed", "swapped"]


class HoldEnded(Action, frozen=True):
    """A hold is over before it was let go of.

    expired: its time has come. needed: without its pages no request could run. flushed: its prefix
    was. swapped: the weights were replaced.
    """

    hold: int
    why: HoldEnd


class Flushed(Action, frozen=True):
    """The answer to a FlushPrefixes: tokens whose KV is gone, and such that are in use."""

    flush: int
    tokens: int
    in_use: int


class WakeAt(Action, frozen=True):
    """Send a Wake at this time. A later WakeAt replaces an earlier one."""

    time: float


AnyEvent = (
    Arrived
    | StepDone
    | LoadDone
    | LoadFailed
    | StoreDone
    | Cancelled
    | WeightsReplaced
    | HoldPrefix
    | LetGo
    | FlushPrefixes
    | Wake
)
AnyAction = (
    RunStep
    | StartLoad
    | CancelLoad
    | StartStore
    | SwapWeights
    | Finish
    | Reject
    | Held
    | HoldEnded
    | Flushed
    | WakeAt
)
