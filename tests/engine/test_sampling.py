"""Sampling is a pure function of a row's logits and of (seed, choice, position)."""

from __future__ import annotations

import math

import pytest
import torch

from headwater.engine import sampler
from headwater.engine.sampler import Draw, nucleus_by_head, nucleus_by_sorting
from headwater.engine.sampling import SamplingParams, uniform
from headwater.errors import BadRequest

GOLDEN = (0.17813344488961602, 0.6748239755616919, 0.859898172000543)


def sample(logits, draws, nucleus=nucleus_by_head):
    return sampler.sample(logits, draws, nucleus)


def draws_of(params, count=1, row=0):
    return [Draw(row, params, choice=0, position=at) for at in range(count)]


def frequencies(logits, params, count=4000):
    tokens = sample(logits, draws_of(params, count)).tokens
    return torch.bincount(torch.tensor(tokens), minlength=logits.shape[1]) / count


def test_uniform_numbers_are_fixed_for_ever():
    """A golden value: seeds must mean the same in the next release."""
    assert uniform(0, 0, 0) == pytest.approx(GOLDEN[0], abs=0)
    assert uniform(-1, 2, 3) == pytest.approx(GOLDEN[1], abs=0)
    assert uniform(1 << 100, 0, 0) == pytest.approx(GOLDEN[2], abs=0)


def test_uniform_numbers_are_uniform_and_differ_in_each_argument():
    numbers = [uniform(s, c, p) for s in range(10) for c in range(10) for p in range(40)]
    assert len(set(numbers)) == len(numbers)
    assert all(0 <= number < 1 for number in numbers)
    counts = torch.histc(torch.tensor(numbers), bins=10, min=0, max=1)
    assert (counts - 400).abs().max() < 100


def test_the_same_token_whatever_else_is_in_the_batch():
    torch.manual_seed(0)
    logits = torch.randn(16, 3000) * 3
    kinds = [
        SamplingParams(temperature=0.0, logprobs=3),
        SamplingParams(seed=1),
        SamplingParams(seed=2, top_p=0.9),
        SamplingParams(seed=3, top_k=20, top_p=0.5, temperature=1.7),
        SamplingParams(seed=4, top_p=0.9999, temperature=9.0),  # a nucleus beyond the first 1,024
        SamplingParams(seed=5, top_k=5000, logprobs=0),
    ]
    draws = [Draw(i % 16, kinds[i % 6], choice=i % 3, position=i) for i in range(48)]
    together = sample(logits, draws)
    for at, draw in enumerate(draws):
        alone = sample(logits[draw.row :][:1], [Draw(0, draw.params, draw.choice, draw.position)])
        assert alone.tokens == [together.tokens[at]]
        assert alone.logprobs == [together.logprobs[at]]
    reverse = sample(logits, draws[::-1])
    assert reverse.tokens[::-1] == together.tokens


def test_tokens_follow_the_distribution():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    expected = logits.softmax(-1)[0]
    assert (frequencies(logits, SamplingParams(seed=7)) - expected).abs().max() < 0.03
    cold = frequencies(logits, SamplingParams(seed=7, temperature=0.5))
    assert (cold - (logits / 0.5).softmax(-1)[0]).abs().max() < 0.03


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ({"top_k": 1}, [2]),
        ({"top_k": 2}, [1, 2]),
        ({"top_p": 0.6}, [2]),  # probabilities 0.087 0.237 0.644 0.032
        ({"top_p": 0.65}, [1, 2]),
        ({"top_p": 0.9}, [0, 1, 2]),
        ({"top_k": 2, "top_p": 0.72}, [2]),  # of the two kept, 0.731 and 0.269
        ({"top_k": 2, "top_p": 0.74}, [1, 2]),
        ({"top_p": 1e-9}, [2]),
        ({"top_k": 99}, [0, 1, 2, 3]),
    ],
)
def test_cuts_keep_the_likeliest(cut, kept):
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    drawn = frequencies(logits, SamplingParams(seed=1, **cut), count=1000)
    assert drawn.nonzero()[:, 0].tolist() == kept


def test_a_nucleus_may_be_wider_than_what_is_sorted_first():
    logits = torch.linspace(0, 1e-3, 3000)[None]
    drawn = sample(logits, draws_of(SamplingParams(top_p=0.9), 2000)).tokens
    assert min(drawn) < 600
    assert min(drawn) >= 300


def test_both_ways_to_a_nucleus_draw_the_same_tokens():
    torch.manual_seed(2)
    logits = torch.cat([torch.randn(8, 3000) * scale for scale in (0.01, 1, 4)])
    draws = [
        Draw(at, SamplingParams(seed=at, top_p=p, temperature=t), 0, at)
        for at in range(len(logits))
        for p in (0.1, 0.9, 0.9999)
        for t in (0.7, 2.0)
    ]
    assert sample(logits, draws) == sample(logits, draws, nucleus_by_sorting)


def test_a_gpu_sorts_and_asks_nothing():
    assert sampler.nucleus_for(torch.device("cuda")) is nucleus_by_sorting
    assert sampler.nucleus_for(torch.device("cpu")) is nucleus_by_head


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_unit_interval_draw_tokens_that_may_be_drawn(monkeypatch, number):
    monkeypatch.setattr("headwater.engine.sampler.uniform", lambda *_: number)
    logits = torch.tensor([[-9.0, 1.0, 1.0, -9.0]])
    (token,) = sample(logits, draws_of(SamplingParams(top_k=2))).tokens
    assert token == (1 if number == 0 else 2)


def test_equally_likely_tokens_are_kept_together():
    logits = torch.tensor([[1.0, 1.0, 0.0]])
    drawn = frequencies(logits, SamplingParams(top_k=1), count=400)
    assert drawn.nonzero()[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("temperature", [0.0, 1e-30, 1e-6])
def test_no_temperature_takes_the_likeliest(temperature):
    logits = torch.tensor([[3.0, 9.0, 1.0], [5.0, 2.0, 1.0]])
    params = SamplingParams(temperature=temperature)
    assert sample(logits, [*draws_of(params), *draws_of(params, row=1)]).tokens == [1, 0]


def test_logprobs_are_the_models_own():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]], dtype=torch.bfloat16)
    params = SamplingParams(temperature=0.3, top_k=1, logprobs=2)
    plain = SamplingParams(temperature=0.0)
    got = sample(logits, [*draws_of(params), *draws_of(plain)])
    expected = logits.float().log_softmax(-1)[0]
    assert got.tokens == [2, 2]
    first, second = got.logprobs
    assert first.drawn == pytest.approx(expected[2].item())
    assert [token for token, _ in first.top] == [2, 1]
    assert first.top[1][1] == pytest.approx(expected[1].item())
    assert second is None


def test_choices_of_one_row_differ_and_one_choice_repeats():
    logits = torch.zeros(1, 1000)
    params = SamplingParams(seed=5)
    tokens = sample(logits, [Draw(0, params, choice, 9) for choice in (0, 1, 2, 0)]).tokens
    assert len(set(tokens)) == 3
    assert tokens[0] == tokens[3]


def test_nothing_to_draw():
    assert sample(torch.zeros(0, 10), []).tokens == []


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"temperature": math.inf}, "temperature must be"),
        ({"top_p": 0.0}, "top_p must lie in"),
        ({"top_p": math.nan}, "top_p must lie in"),
        ({"top_p": 1.1}, "top_p must lie in"),
        ({"top_k": 0}, "top_k must be 1 or more"),
        ({"logprobs": 21}, "logprobs must lie in 0..20"),
        ({"logprobs": -1}, "logprobs must lie in"),
    ],
)
def test_senseless_values_are_refused_in_one_sentence(values, why):
    with pytest.raises(BadRequest, match=why) as caught:
        SamplingParams(**values)
    assert str(caught.value).endswith(".")
