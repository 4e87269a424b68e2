"""Attention over the pool against each model's own eager attention over whole sequences."""

from __future__ import annotations

import random

import pytest
import torch

from headwater.engine.attention import Forward, attend
from headwater.engine.attention_plan import plan_attention
from headwater.engine.attention_reads import Gathered, InPlace, OwnRows, Tails
from headwater.engine.kernels import plain
from headwater.errors import ModelRefused
from headwater.schedule.step import Segment, SlotRun
from tests.engine.steps import PAGE, VOCABULARY, Lab, Work, replace_step, runs_of, tiny_model

CLOSE = 1e-4  # logits here have a magnitude of several units

# How reads are chosen must never show: everything in calls of its own, everything in tails, both.
COSTS = [
    {"call": 1, "part": 5, "lanes": 2},
    {"call": 10_000},
    {"call": 12},
    {"call": 2, "part": 2, "lanes": 7, "batch": 30},
]


@pytest.fixture(params=COSTS, ids=["wide", "tails", "mixed", "split"])
def labs(request, any_model):
    return Lab(any_model, **request.param)


def prefill(lab, sequence, end, begin=0):
    return lab.difference(Work(sequence, begin, end))


def test_prompt_in_chunks(labs):
    sequence = labs.sequence(61, seed=1)
    for begin, end in [(0, 1), (1, 18), (18, 40), (40, 61)]:
        assert prefill(labs, sequence, end, begin) < CLOSE


def test_contiguous_context_is_read_in_place(labs):
    sequence = labs.sequence(47, seed=2)
    labs.extend_run(sequence, 47)
    for begin, end in [(0, 31), (31, 46), (46, 47)]:
        assert prefill(labs, sequence, end, begin) < CLOSE


def test_many_rows_share_a_run(labs):
    root = labs.sequence(41, seed=3)
    labs.extend_run(root, 41)
    assert prefill(labs, root, 41) < CLOSE
    branches = [labs.fork(root, 40, [b, b + 1, b + 2]) for b in range(9)]
    for at in (40, 41, 42):
        assert labs.difference(*(Work(each, at, at + 1) for each in branches)) < CLOSE


def test_tree_of_several_levels_with_tails_of_mixed_lengths(labs):
    """Sequences leave each other at every level and in mid-page, and go on by different amounts."""
    draw = random.Random(4)
    root = labs.sequence(33, seed=4)
    assert prefill(labs, root, 33) < CLOSE
    inner = [labs.fork(root, at, [at, 1, 2, 3, 4, 5, 6]) for at in (32, 29, 20)]
    works = [Work(s, at, at + 7) for s, at in zip(inner, (32, 29, 20), strict=True)]
    assert labs.difference(*works) < CLOSE
    leaves = []
    for parent in inner:
        for _ in range(3):
            at = len(parent.tokens) - draw.randrange(3)
            leaves.append((labs.fork(parent, at, [draw.randrange(90) for _ in range(24)]), at))
    ends = [at + draw.choice((1, 2, 7, 21)) for _, at in leaves]
    works = [Work(leaf, at, end) for (leaf, at), end in zip(leaves, ends, strict=True)]
    assert labs.difference(*works) < CLOSE
    works = [Work(work.sequence, work.end, work.end + 1) for work in works]
    assert labs.difference(*works) < CLOSE


def test_chunk_and_decodes_in_one_step(labs):
    root = labs.sequence(26, seed=5)
    assert prefill(labs, root, 26) < CLOSE
    follower = labs.fork(root, 25, list(range(20)))
    decoding = labs.fork(root, 24, [7, 8])
    stranger = labs.sequence(15, seed=6)
    works = [Work(follower, 25, 45), Work(decoding, 24, 25), Work(stranger, 0, 15)]
    assert labs.difference(*works) < CLOSE


def test_a_fully_cached_prompt_computes_one_row_into_the_sink(labs):
    sequence = labs.sequence(23, seed=7)
    assert prefill(labs, sequence, 23) < CLOSE
    before = labs.pool.tokens[:, :, : labs.pool.slots].clone()
    assert labs.difference(Work(sequence, 22, 23, hit=True)) < CLOSE
    after = labs.pool.tokens[:, :, : labs.pool.slots]
    assert torch.equal(before.nan_to_num(-1), after.nan_to_num(-1))


def test_a_copied_branch_survives_its_source(lab):
    root = lab.sequence(19, seed=8)
    assert prefill(lab, root, 19) < CLOSE
    branch = lab.fork(root, 18, [3, 1, 4])
    assert branch.slots[16] != root.slots[16]
    assert lab.difference(Work(branch, 18, 20)) < CLOSE
    last = slice(root.slots[16], root.slots[16] + PAGE)
    lab.pool.tokens[:, :, last] = float("nan")
    assert lab.difference(Work(branch, 20, 21)) < CLOSE


@pytest.mark.parametrize("wrong", ["doubled", "foreign", "shifted"])
def test_a_wrong_page_table_is_caught(lab, wrong):
    """The comparison itself must be sharp: a table that is subtly wrong gives other logits.

    (Two pages that change places are not wrong: keys carry their positions, attention is a sum.)
    """
    root, other = lab.sequence(40, seed=9), lab.sequence(40, seed=10)
    assert prefill(lab, root, 40) < CLOSE
    assert prefill(lab, other, 40) < CLOSE
    work = Work(lab.fork(root, 39, [5, 6]), 39, 40)
    step = lab.step(work)
    context = step.segments[0]
    runs = list(context.runs)
    if wrong == "doubled":  # one page in place of another of the same sequence
        runs[3] = runs[5]
    elif wrong == "foreign":  # one page of another sequence at the same place
        runs[3] = SlotRun(other.slots[12], 4)
    else:  # one page off by a slot
        runs[3] = SlotRun(other.slots[13], 3)
        runs[4] = SlotRun(runs[4].first, 5)
    planted = Segment(tuple(runs), context.row_begin, context.row_end, False)
    wrong_step = replace_step(step, segments=[planted, *step.segments[1:]])
    assert (lab.logits(step) - lab.expected(work)).abs().max() < CLOSE
    difference = (lab.logits(wrong_step) - lab.expected(work)).abs().max()
    assert not difference < 50 * CLOSE


def test_a_causal_segment_of_one_row_is_its_own_slot(labs):
    sequence = labs.sequence(10, seed=17)
    assert prefill(labs, sequence, 9) < CLOSE
    work = Work(sequence, 9, 10)
    step = labs.step(work)
    context = Segment(runs_of(sequence.slots[:9]), 0, 1, False)
    own = Segment((SlotRun(sequence.slots[9], 1),), 0, 1, True)
    split = replace_step(step, segments=[context, own])
    assert (labs.logits(split) - labs.expected(work)).abs().max() < CLOSE


@pytest.mark.parametrize("change", [-1, 1])
def test_a_table_that_lost_or_doubled_slots_is_refused(lab, change):
    sequence = lab.sequence(13, seed=11)
    assert prefill(lab, sequence, 12) < CLOSE
    step = lab.step(Work(sequence, 12, 13))
    first, *others = step.segments[0].runs
    runs = (SlotRun(first.first, first.count + change), *others)
    broken = replace_step(step, segments=[Segment(runs, 0, 1, False)])
    with pytest.raises(ValueError, match=f"row 0 is at position 12 but reads {13 + change} slots"):
        lab.logits(broken)


def test_reads_are_chosen_by_their_cost(model):
    lab = Lab(model, call=12)
    root = lab.sequence(64, seed=12)
    lab.extend_run(root, 40)
    lab.logits(lab.step(Work(root, 0, 64)))
    branches = [lab.fork(root, 60, [b] * 8) for b in range(3)]
    step = lab.step(Work(branches[0], 60, 66), *(Work(b, 60, 61) for b in branches[1:]))
    plan = plan_attention(step, lab.costs, lab.pool)
    kinds = sorted((type(read).__name__, read.count) for read in plan.reads)
    assert kinds == [("Gathered", 8), ("InPlace", 8), ("OwnRows", 6), ("Tails", 2)]
    assert plan.reads[0].count == 8, "a read of all rows comes first and needs no merge"


def test_few_rows_over_a_long_run_are_split_over_the_lanes(model):
    lab = Lab(model, call=4, part=4, lanes=3)
    root = lab.sequence(50, seed=13)
    lab.extend_run(root, 50)
    lab.logits(lab.step(Work(root, 0, 49)))
    plan = plan_attention(lab.step(Work(root, 49, 50)), lab.costs, lab.pool)
    (read,) = plan.reads
    assert isinstance(read, InPlace)
    # 2 KV heads on 3 lanes: 3 parts make 6 tasks. 50 = 2 × 16 + 18, the overlap is masked.
    assert (read.step, read.size) == (16, 18)
    assert read.mask is not None
    assert torch.isinf(read.mask).sum() == 4


@pytest.mark.parametrize(
    ("mask", "options", "why"),
    [
        (None, {}, "does not hand arguments on"),
        (torch.zeros(1), {}, "mask of its own"),
        (None, {"sliding_window": 8}, "uses sliding_window"),
        (None, {"softcap": 30.0}, "uses softcap"),
        (None, {"s_aux": torch.zeros(4)}, "uses s_aux"),
        (None, {"head_size": 8}, "works on shapes"),
    ],
)
def test_attention_refuses_what_it_does_not_know(lab, mask, options, why):
    sequence = lab.sequence(3, seed=14)
    step = lab.step(Work(sequence, 0, 3))
    plan = plan_attention(step, lab.costs, lab.pool)
    forward = Forward(lab.pool, plan, torch.tensor(step.slots, device=lab.pool.device), plain)
    layer = lab.model.net.model.layers[0].self_attn
    size = options.pop("head_size", 16)
    q, kv = (torch.zeros(1, heads, 3, size, device=lab.pool.device) for heads in (4, 2))
    if why != "does not hand arguments on":
        options = {**options, "headwater": forward}
    with pytest.raises(ModelRefused, match=why):
        attend(layer, q, kv, kv, mask, **options)


def test_no_read_gathers_more_than_a_batch(model):
    """However long a context is that lies in scattered pages, and however deep a row's tail."""
    costs = {"call": 16, "batch": 20}
    lab = Lab(model, **costs)
    root = lab.sequence(90, seed=18)
    assert prefill(lab, root, 90) < CLOSE
    deep = [root]
    for at in (88, 95, 102, 109):  # each level's branch leaves the others a short run
        deep.append(lab.fork(deep[-1], at, [at % VOCABULARY] * 8))
        assert prefill(lab, deep[-1], at + 7, at) < CLOSE
    works = [Work(each, len(each.tokens) - 1, len(each.tokens)) for each in deep[1:]]
    step = lab.step(*works)
    plan = plan_attention(step, lab.costs, lab.pool)
    gathered = [len(read.index) for read in plan.reads if isinstance(read, Gathered)]
    tails = [len(read.index) for read in plan.reads if isinstance(read, Tails)]
    assert len(gathered) > 4
    assert tails
    assert max(gathered + tails) <= 20
    assert (lab.logits(step) - lab.expected(*works)).abs().max() < CLOSE


def test_every_kind_of_read_exists_in_some_plan(model):
    """Guards the parametrisation above: each read is exercised by it."""
    seen = set()
    for costs in COSTS:
        lab = Lab(model, **costs)
        root = lab.sequence(40, seed=15)
        lab.logits(lab.step(Work(root, 0, 40)))
        branch = lab.fork(root, 33, [1] * 9)
        step = lab.step(Work(branch, 33, 38), Work(root, 39, 40, hit=True))
        seen |= {type(read) for read in plan_attention(step, lab.costs, lab.pool).reads}
    assert seen == {OwnRows, InPlace, Gathered, Tails}


def test_mixture_of_experts_and_other_seeds():
    lab = Lab(tiny_model("mixtral", seed=3, num_local_experts=4, sliding_window=None), call=6)
    root = lab.sequence(30, seed=16)
    assert prefill(lab, root, 30) < CLOSE
    branches = [lab.fork(root, 27, [b, b, b]) for b in range(4)]
    assert lab.difference(*(Work(b, 27, 30) for b in branches)) < CLOSE
