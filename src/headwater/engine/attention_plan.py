"""How a step's attention is executed: which reads, in which order, over which rows.

The plan is made once a step from its segments and is used by every layer. A segment is cut into
pieces, and a piece becomes the cheapest of four reads:

    segment of rows [a, b)
      causal                    -> OwnRows     its rows' fresh keys and values, not the pool's
      a long run                -> InPlace     a strided view of the pool
      short runs, many rows     -> Gathered    one index_select, read once for all rows
      short runs, few rows      -> Tails       padded together with those of other rows, see below

A short run that few rows share is cheaper gathered once for each of them than read by a call of its
own: it joins what those rows must gather anyway. So a row has at most one tail, however deep the
tree above it, and the tails of similar length are one batched read.

Reading a shared run once for all rows below it is the idea of Hydragen (Juravsky et al. 2024) and
of cascade attention (FlashInfer); reading slots through an index is PagedAttention (Kwon et al.
2023); the cut of a long run for few rows is Flash-Decoding (Dao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.engine.attention_reads import Gathered, InPlace, OwnRows, Read, Tails
from headwater.engine.kv import KVPool
from headwater.schedule.step import SlotRun, Step


@dataclass(frozen=True, slots=True)
class Costs:
    """What decides between reads, in the units of one layer of one model on one device.

    heads, group: KV heads, and query heads for each of them.
    lanes: tasks the device runs at once (CPU threads, GPU multiprocessors).
    block: query rows that one task takes (the kernel's tile).
    call: tokens that can be gathered in the time of one more kernel call and merge.
    part: fewest tokens worth a part of their own when a run is cut.
    batch: most tokens gathered by one read, padding included; bounds temporary memory. More are
        several reads, merged.
    """

    heads: int
    group: int
    lanes: int
    block: int
    call: int
    part: int
    batch: int

    def parts(self, rows: int, count: int) -> int:
        """Into how many parts to cut a run of `count` tokens so that no lane idles.

        A task is one KV head, one tile of query rows and one part; 3 KV heads on 2 threads would
        leave a quarter of the machine idle.
        """
        tasks = self.heads * -(-rows * self.group // self.block)
        most = max(1, min(count // self.part, self.lanes))
        for parts in range(1, most + 1):
            waves = -(-tasks * parts // self.lanes)
            if tasks * parts >= 0.9 * waves * self.lanes:
                return parts
        return min(most, -(-self.lanes // tasks))


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Reads in the order of their merge. The first covers all rows if any does."""

    rows: int
    reads: tuple[Read, ...]


def plan_attention(step: Step, costs: Costs, pool: KVPool) -> AttentionPlan:
    """Plan the reads of a step. Raises ValueError for a step whose segments cannot be right."""
    check_coverage(step)
    reads: list[Read] = []
    tails: dict[int, list[SlotRun]] = {}
    for segment in step.segments:
        rows = range(segment.row_begin, segment.row_end)
        if segment.causal and len(rows) > 1:
            reads.append(OwnRows(_slice(rows)))
            continue
        long, short = _split_runs(_joined(segment.runs), len(rows), costs)
        reads += [_in_place(run, rows, costs, pool) for run in long]
        # A tail that grows beyond a batch would be one read that no batching can cut.
        longest = max(_count(tails.get(row, ())) for row in rows) + _count(short)
        if _count(short) * len(rows) > costs.call or longest > costs.batch:
            reads += _gathered(short, rows, costs, pool)
        elif short:
            for row in rows:
                tails.setdefault(row, []).extend(short)
    reads += [_tails(batch, tails, pool) for batch in _batches(tails, costs)]
    # Widest first: a first read that covers all rows is the running total, no merge needed.
    reads.sort(key=lambda read: -read.count)
    return AttentionPlan(len(step.tokens), tuple(reads))


def check_coverage(step: Step) -> None:
    """Every row reads as many slots as it has positions, its own included.

    This is a count, not a proof, but it catches a page table that lost or doubled a run before it
    becomes a wrong answer, and costs microseconds.
    """
    rows = len(step.tokens)
    change = np.zeros(rows + 1, np.int64)
    covered = np.zeros(rows, np.int64)
    for segment in step.segments:
        begin, end, count = segment.row_begin, segment.row_end, _count(segment.runs)
        if not 0 <= begin < end <= rows:
            raise ValueError(f"a segment serves rows [{begin}, {end}) of a step of {rows} rows")
        if segment.causal:
            if count != end - begin:
                raise ValueError(f"a causal segment of {end - begin} rows holds {count} slots")
            covered[begin:end] += np.arange(1, count + 1)
        else:
            change[begin] += count
            change[end] -= count
    covered += change[:-1].cumsum()
    wrong = np.flatnonzero(covered != np.asarray(step.positions) + 1)
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"row {row} is at position {step.positions[row]} but reads {covered[row]} slots"
        )


def _split_runs(
    runs: list[SlotRun], rows: int, costs: Costs
) -> tuple[list[SlotRun], list[SlotRun]]:
    """Runs to read in place and runs to gather."""
    if len(runs) == 1:
        # Nothing to join it with: the view saves the copy, unless the rows' tails take it in.
        return (runs, []) if runs[0].count * rows > costs.call else ([], runs)
    long = [run for run in runs if run.count > costs.call]
    return long, [run for run in runs if run.count <= costs.call]


def _in_place(run: SlotRun, rows: range, costs: Costs, pool: KVPool) -> InPlace:
    """Cut `run` into equally long parts, which overlap when its length does not divide.

    run      |0 1 2 3 4 5 6 7 8 9 10|      11 slots in 3 parts: step 3, size 5
    part 0   |0 1 2 . .|                   . is masked, the next part reads it
    part 1         |3 4 5 . .|
    part 2               |6 7 8 9 10|
    """
    parts = costs.parts(len(rows), run.count)
    step = run.count // parts
    size = run.count - (parts - 1) * step
    mask = None
    if size > step:
        hidden = np.zeros((parts, size), np.bool_)
        hidden[:-1, step:] = True
        mask = _mask(hidden, pool)
    return InPlace(_slice(rows), run.first, run.count, step, size, mask)


def _gathered(runs: list[SlotRun], rows: range, costs: Costs, pool: KVPool) -> Iterable[Gathered]:
    """Reads of at most `costs.batch` tokens each: what is gathered is a copy that needs room."""
    index = torch.from_numpy(_slots(runs)).to(pool.device)
    parts = -(-len(index) // costs.batch)
    return [Gathered(_slice(rows), part) for part in index.tensor_split(parts)]


def _batches(tails: dict[int, list[SlotRun]], costs: Costs) -> Iterable[list[int]]:
    """Rows whose tails are gathered together: longest first, a new batch where padding costs more
    than a call or the gathered KV would grow too large."""
    length = {row: _count(runs) for row, runs in tails.items()}
    batch: list[int] = []
    padding = 0
    for row in sorted(tails, key=lambda row: (-length[row], row)):
        longest = length[batch[0]] if batch else length[row]
        padding += longest - length[row]
        if batch and (padding > costs.call or longest * (len(batch) + 1) > costs.batch):
            yield sorted(batch)
            batch, padding = [], 0
        batch.append(row)
    if batch:
        yield sorted(batch)


def _tails(rows: list[int], tails: dict[int, list[SlotRun]], pool: KVPool) -> Tails:
    """One padded read. Padding repeats the row's own last slot and is masked: it must be a slot
    that was written, and by the row's own sequence, since 0 × NaN would carry over."""
    slots = [_slots(tails[row]) for row in rows]
    counts = np.array([len(each) for each in slots])
    width = int(counts.max())
    index = np.empty((len(rows), width), np.int64)
    for line, each in zip(index, slots, strict=True):
        line[: len(each)] = each
        line[len(each) :] = each[-1]
    mask = None
    if counts.min() < width:
        mask = _mask(np.arange(width) >= counts[:, None], pool)
    consecutive = rows[-1] - rows[0] == len(rows) - 1
    where = slice(rows[0], rows[-1] + 1) if consecutive else torch.tensor(rows).to(pool.device)
    return Tails(where, len(rows), torch.from_numpy(index.reshape(-1)).to(pool.device), mask)


def _mask(hidden: npt.NDArray[np.bool_], pool: KVPool) -> Tensor:
    """`hidden` `[batch, key]` as a bias `[batch, 1, 1, key]`, in the pool's format.

    CUDA's kernel wants the bias in the format of the queries and lines aligned to 16 entries; the
    view of a wider tensor has both.
    """
    batch, width = hidden.shape
    mask = torch.zeros((batch, 1, 1, -(-width // 16) * 16), dtype=pool.form.dtype)
    mask[..., :width].masked_fill_(torch.from_numpy(hidden)[:, None, None], float("-inf"))
    return mask.to(pool.device)[..., :width]


def _joined(runs: Sequence[SlotRun]) -> list[SlotRun]:
    """Join runs that continue each other, so that a run grown page by page is read as one."""
    joined: list[SlotRun] = []
    for run in runs:
        if joined and joined[-1].first + joined[-1].count == run.first:
            joined[-1] = SlotRun(joined[-1].first, joined[-1].count + run.count)
        elif run.count:
            joined.append(run)
    return joined


def _slice(rows: range) -> slice:
    return slice(rows.start, rows.stop)


def _count(runs: Iterable[SlotRun]) -> int:
    return sum(run.count for run in runs)


def _slots(runs: Sequence[SlotRun]) -> npt.NDArray[np.int64]:
    """The slots of runs, in order."""
    first = np.array([run.first for run in runs])
    count = np.array([run.count for run in runs])
    before = count.cumsum() - count
    return np.repeat(first - before, count) + np.arange(count.sum())
