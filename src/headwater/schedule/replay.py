"""Replaying the log of a live engine: the same events must give the same actions.

A log is lines of JSON: a header with what the machine was built from, then each event with its
time and a digest of the actions that followed. Prompts stand in it as token ids, so a log is as
confidential as they are. Secrets do not: namespaces are keyed by one, so they are masked in the
digests and the replay's are made from domain and salt alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from headwater.identity.framing import frame
from headwater.schedule.events import Action, AnyEvent, StartLoad, StartStore
from headwater.schedule.recipe import Recipe


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a log."""

    schema: Literal["headwater.log/1"] = "headwater.log/1"
    recipe: Recipe


class Record(msgspec.Struct, frozen=True):
    """Every other line: at the time `at` an event was handled; `actions` digests what followed."""

    at: float
    event: AnyEvent
    actions: str


class Difference(msgspec.Struct, frozen=True):
    """The first event, counted from 0, after which the replay wanted something else done."""

    index: int
    record: Record
    actions: list[Action]


class Replayed(msgspec.Struct, frozen=True):
    """How many events were replayed, and where the actions differed, if they did."""

    events: int
    difference: Difference | None


def replay(lines: Iterable[bytes]) -> Replayed:
    """Put a log's events through a fresh machine, up to the first difference.

    A last line that is torn, as a killed process leaves it, is passed over. Raises msgspec's
    DecodeError for any other line that is none of a log, also where there is no first one, and
    whatever the machine raised.
    """
    remaining = iter(lines)
    header = msgspec.json.decode(next(remaining, b""), type=Header)
    machine = header.recipe.build(_stand_in)
    decoder = msgspec.json.Decoder(Record)
    events = 0
    for line in remaining:
        try:
            record = decoder.decode(line)
        except msgspec.DecodeError:
            if next(remaining, None) is None:
                break
            raise
        actions = machine.handle(record.event, record.at)
        if digest(actions) != record.actions:
            return Replayed(events, Difference(events, record, actions))
        events += 1
    return Replayed(events, None)


def header_line(recipe: Recipe) -> bytes:
    return msgspec.json.encode(Header(recipe=recipe)) + b"\n"


def record_line(at: float, event: AnyEvent, actions: Sequence[Action]) -> bytes:
    return msgspec.json.encode(Record(at, event, digest(actions))) + b"\n"


def digest(actions: Sequence[Action]) -> str:
    """A digest of actions, namespaces masked."""
    masked = [
        msgspec.structs.replace(action, namespace=b"")
        if isinstance(action, StartLoad | StartStore)
        else action
        for action in actions
    ]
    return blake2b(msgspec.json.encode(masked), digest_size=16).hexdigest()


def _stand_in(epoch: str, domain: str, salt: str) -> bytes:
    return frame([epoch, domain, salt])
