"""One step of the engine, as flat arrays.

A step names token ids, positions, KV slots and the segments of KV that each row reads. It knows
neither requests nor tree nodes, so that any runtime that can scatter, attend and sample could
execute it.

    rows     0    1    2    3    4    5    6         in depth-first order of the prefix tree
             |--- chunk of A ----|  B    C  |
    segment  [========= run shared by A, B, C =====]  rows [0, 7)
    segment  [==causal===========]                    rows [0, 5): A's own new tokens
    segment                        [==]               rows [5, 6): B's own tail

Every row is served by the segments whose row range contains it; together they cover exactly the
positions [0, position of the row].
"""

from __future__ import annotations

import msgspec


class SlotRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive KV slots [first, first + count)."""

    first: int
    count: int


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A piece of KV and the rows [row_begin, row_end) that read it.

    `runs` lists the slots in position order. When `causal` is false every row reads all of them.
    When it is true the segment holds exactly the KV of its own rows, slot i of the segment being
    row `row_begin + i`, and a row reads the slots up to and including its own.
    """

    runs: tuple[SlotRun, ...]
    row_begin: int
    row_end: int
    causal: bool


class Copy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Copy the KV of `count` slots, all layers, before any row is computed.

    A branch that leaves in mid-page copies the leading slots it shares. Sources are never written
    in the same step, so the copies of a step may run in any order.
    """

    source: int
    target: int
    count: int


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Draw one token from the logits of `row` for a choice of a request.

    `position` is the position the drawn token will have; with the request's seed and the choice it
    decides the randomness. Several samples may name one row: choices of one prompt share it.
    """

    row: int
    request: int
    choice: int
    position: int


class Score(msgspec.Struct, frozen=True, array_like=True):
    """Say how likely a prompt's own tokens were.

    `targets[i]` is the token of the prompt that follows row `row + i`; the first of them stands at
    `position`.
    """

    row: int
    request: int
    position: int
    targets: list[int]


class Step(msgspec.Struct, frozen=True):
    """What the engine computes in one forward pass.

    tokens, positions, slots: one entry a row. A slot of `sink` means that the row's KV is already
    cached and what is written for it is never read.
    repeat: how many further steps would have the same rows and sequences, each one position on, if
    no event arrives. A simulator may jump over them.
    """

    id: int
    tokens: list[int]
    positions: list[int]
    slots: list[int]
    segments: list[Segment]
    samples: list[Sample]
    copies: list[Copy]
    repeat: int = 0
    scores: list[Score] = []
