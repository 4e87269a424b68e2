from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.overrides import TorchFunctionMode

from headwater.engine.runner import StepRunner
from headwater.engine.sampler import nucleus_for
from headwater.engine.sampling import SamplingParams
from headwater.schedule.step import Sample
from tests.engine.steps import Work

# Ways for a tensor's values to reach the host. `to` and `copy_` go elsewhere only from a device.
TO_HOST = {"tolist", "item", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__"}
# Operations whose output size is data, for which a device must be waited for.
WAITING = {"nonzero", "unique", "masked_select", "argwhere", "bincount"}


class CountingCopies(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in TO_HOST | WAITING:
            self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


def generated(runner, lab, sequence, begin, count, params, choice=0):
    """Prefill from `begin`, then decode `count` tokens; the tokens it drew."""
    tokens = []
    for _ in range(count):
        end = len(sequence.tokens)
        sampled = Sample(end - begin - 1, 7, choice, end)
        step = lab.step(Work(sequence, begin, end), samples=[sampled])
        tokens += runner.run(step, {7: params}).tokens
        sequence.tokens.append(tokens[-1])
        begin = end
    return tokens


@pytest.fixture
def runner(lab):
    return StepRunner(lab.model, lab.pool, lab.costs)


def test_greedy_tokens_equal_the_models_own(lab, runner):
    sequence = lab.sequence(20, seed=1)
    drawn = generated(runner, lab, sequence, 0, 12, SamplingParams(temperature=0.0))
    logits = lab.expected(Work(sequence, 19, 31))
    assert drawn == logits.argmax(-1).tolist()


def test_a_hit_draws_the_same_tokens_as_a_cold_prompt(lab, runner):
    params = SamplingParams(seed=11, temperature=0.8)
    cold = lab.sequence(30, seed=2)
    forked_from = lab.sequence(30, seed=2)
    lab.logits(lab.step(Work(forked_from, 0, 30)))
    hit = lab.fork(forked_from, 27, forked_from.tokens[27:])
    expected = generated(runner, lab, cold, 0, 8, params)
    assert generated(runner, lab, hit, 27, 8, params) == expected


def test_samples_may_share_a_row_and_come_in_any_order(lab, runner):
    one, two = lab.sequence(9, seed=3), lab.sequence(6, seed=4)
    params = {1: SamplingParams(seed=1), 2: SamplingParams(temperature=0.0, logprobs=1)}
    asked = [Sample(14, 2, 0, 6), Sample(8, 1, 1, 9), Sample(8, 1, 0, 9), Sample(8, 1, 1, 9)]
    step = lab.step(Work(one, 0, 9), Work(two, 0, 6), samples=asked)
    result = runner.run(step, params)
    assert result.tokens[0] == lab.expected(Work(two, 5, 6)).argmax().item()
    assert result.tokens[1] == result.tokens[3]
    assert [each is not None for each in result.logprobs] == [True, False, False, False]


def test_a_step_without_samples_writes_its_kv(lab, runner):
    sequence = lab.sequence(10, seed=5)
    step = lab.step(Work(sequence, 0, 9))
    assert runner.run(step, {}).tokens == []
    assert lab.difference(Work(sequence, 9, 10)) < 1e-4


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "logprobs": 5},
        {"top_k": 5, "seed": 1},
        {"seed": 1, "logprobs": 2},
        {"top_p": 0.9, "seed": 1},
        {"top_p": 0.99, "top_k": 50, "seed": 1, "logprobs": 3},
    ],
    ids=str,
)
def test_one_copy_to_the_host_a_step(lab, runner, params):
    """Counted where values leave tensors: plan, forward and sampling, as a GPU would do them.

    Nothing but the way to a nucleus depends on the kind of device, see the test below.
    """
    runner.nucleus = nucleus_for(torch.device("cuda"))
    root = lab.sequence(21, seed=6)
    runner.run(lab.step(Work(root, 0, 21)), {})
    branches = [lab.fork(root, 18, [b, b, b, b]) for b in range(3)]
    works = [Work(b, 18, 21) for b in branches]
    samples = [Sample(3 * b + 2, b, 0, 21) for b in range(3)]
    step = lab.step(*works, samples=samples)
    chosen = {b: SamplingParams(**params) for b in range(3)}
    with CountingCopies() as copies:
        runner.run(step, chosen)
    assert copies.seen == ["tolist"]


def test_the_counter_counts():
    with CountingCopies() as copies:
        assert torch.ones(1).item() == 1
        assert torch.ones(2).nonzero().tolist()
        assert torch.ones(1)
    assert copies.seen == ["item", "nonzero", "tolist", "__bool__"]


def test_a_runner_reads_by_the_costs_it_is_given_and_else_by_its_devices(lab, monkeypatch):
    given = replace(lab.costs, call=1)
    device = replace(lab.costs, call=77)
    monkeypatch.setattr("headwater.engine.runner.costs_for", lambda pool, heads: device)
    assert StepRunner(lab.model, lab.pool, given).costs is given
    assert StepRunner(lab.model, lab.pool).costs is device


def test_a_runner_cuts_as_its_device_does(runner):
    assert runner.nucleus is nucleus_for(runner.pool.device)
