"""The few numbers an operator may set for the scheduler."""

from __future__ import annotations

import msgspec

from headwater.schedule.order import Order


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """
    context: tokens the model can attend to; a longer prompt is rejected.
    running: most sequences in the batch.
    step_tokens: most rows in a step. Decode rows come first; prefill chunks get what is left.
    patience: how many admissions later than under first come, first served a sequence may start,
        before it is next of its priority.
    scored_rows: most rows of a step for a request whose prompt is scored: each of them needs a row
        of logits, as wide as the vocabulary.
    growth_pages: pages reserved at a time for a growing sequence, while the pool has plenty.
    """

    context: int
    running: int = 256
    step_tokens: int = 2048
    patience: int = 64
    order: Order = Order.fcfs
    growth_pages: int = 4
    scored_rows: int = 256
