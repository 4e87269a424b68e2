"""Generating, as a caller in a thread sees it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

import headwater
from headwater import BadRequest
from headwater.engine.asked import Asked, Wanted
from headwater.engine.options import Named, Options
from headwater.engine.results import Piece
from headwater.engine.sampling import SamplingParams
from tests.engine.tiny import CONTEXT

GREEDY = {"temperature": 0.0, "ignore_eos": True}


def by_the_model_itself(loaded, tokens, count):
    """Greedy tokens by the network's own attention over the whole sequence, again and again."""
    tokens = list(tokens)
    with torch.inference_mode(), loaded.model.own_attention() as net:
        for _ in range(count):
            logits = net(input_ids=torch.tensor([tokens]), use_cache=False).logits
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[-count:]


def test_greedy_answers_are_the_models_own(loaded, hw):
    tokens = loaded.tokenizer.encode("the quick brown fox")
    expected = by_the_model_itself(loaded, tokens, 12)
    for _ in range(2):  # cold, then cached
        result = hw.generate(tokens, max_tokens=12, **GREEDY)
        assert result.choices[0].tokens == expected
    assert result.usage.cached_tokens == len(tokens) - 1
    assert result.cache.sources.computed == 1


def test_the_same_prompt_in_every_form(loaded, hw):
    text = "hello 世界"
    ids = loaded.tokenizer.encode(text)
    answers = [
        hw.generate(prompt, max_tokens=5, **GREEDY).text
        for prompt in (text, ids, tuple(ids), np.asarray(ids), np.asarray(ids, np.uint16))
    ]
    assert len(set(answers)) == 1


def test_a_conversation_goes_on_where_it_was(loaded, hw):
    messages = [{"role": "user", "content": "tell me about the fox"}]
    first = hw.generate(messages, max_tokens=20, temperature=0)
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "and the dog"},
    ]
    second = hw.generate(messages, max_tokens=4, temperature=0)
    assert second.usage.cached_tokens >= first.usage.prompt_tokens


def test_pieces_join_to_the_result(hw):
    generation = hw.submit("the dog", max_tokens=30, seed=3, ignore_eos=True, logprobs=2)
    pieces = list(generation)
    result = generation.result()
    [choice] = result.choices
    assert choice.text == "".join(piece.text for piece in pieces)
    assert choice.tokens == [token for piece in pieces for token in piece.tokens]
    assert len(choice.tokens) == len(choice.logprobs) == 30
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert pieces[-1].end.usage == result.usage


def test_stream_gives_the_same_text_as_generate(hw):
    asked = {"max_tokens": 10, "seed": 5, "ignore_eos": True}
    streamed = "".join(piece.text for piece in hw.stream("hello", **asked))
    assert streamed == hw.generate("hello", **asked).text


def test_a_seed_draws_the_same_answer_whatever_else_runs(hw):
    asked = {"max_tokens": 12, "seed": 9, "ignore_eos": True}
    alone = hw.generate("the fox says", **asked)
    others = [hw.submit(f"the fox {n}", max_tokens=20, ignore_eos=True) for n in range(5)]
    again = hw.generate("the fox says", **asked)
    assert again.choices[0].tokens == alone.choices[0].tokens
    assert all(other.result().usage.completion_tokens == 20 for other in others)


def test_without_a_seed_answers_differ(hw):
    answers = {hw.generate("hello", max_tokens=12, ignore_eos=True).text for _ in range(4)}
    assert len(answers) > 1


def test_a_drawn_seed_is_told_and_draws_the_answer_again(hw):
    first = hw.generate("hello", max_tokens=12, n=2, ignore_eos=True)
    again = hw.generate("hello", max_tokens=12, n=2, ignore_eos=True, seed=first.seed)
    assert again.choices == first.choices
    assert again.seed == first.seed
    assert hw.generate("hello", max_tokens=1, seed=5).seed == 5


def test_time_counts_from_the_call_on(hw, monkeypatch):
    encode = hw.loaded.tokenizer.encode

    def slow(text, room):
        time.sleep(0.3)
        return encode(text, room)

    monkeypatch.setattr(hw.loaded.tokenizer, "encode", slow)
    timing = hw.generate("hello", max_tokens=1).timing
    assert timing.total >= timing.first_token >= 0.3


def test_choices_share_one_prompt(hw):
    result = hw.generate("the lazy dog and the fox", n=4, seed=1, max_tokens=9, ignore_eos=True)
    assert [choice.index for choice in result.choices] == [0, 1, 2, 3]
    assert len({choice.text for choice in result.choices}) > 1
    assert result.usage.completion_tokens == 36
    assert result.cache.sources.computed == result.usage.prompt_tokens, "computed once, not 4 times"
    again = hw.generate("the lazy dog and the fox", n=2, seed=1, max_tokens=9, ignore_eos=True)
    assert again.choices == result.choices[:2]


def test_pieces_of_choices_come_with_their_number(hw):
    pieces = list(hw.stream("the dog", n=3, max_tokens=4, ignore_eos=True))
    assert {piece.choice for piece in pieces} == {0, 1, 2}
    assert [piece.end is not None for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_the_end_token_ends_the_answer_and_is_no_text(loaded, hw):
    tokens = hw.generate("hello", max_tokens=6, **GREEDY).choices[0].tokens
    last = tokens[3]
    at = tokens.index(last)
    result = hw.generate("hello", max_tokens=6, stop_token_ids=[last], **GREEDY)
    [choice] = result.choices
    assert choice.tokens == tokens[: at + 1]
    assert choice.text == loaded.tokenizer.decode(tokens[:at])
    assert choice.finish_reason == "stop"


def test_a_stop_string_ends_the_answer_across_tokens(loaded, hw):
    whole = hw.generate("say hello", max_tokens=40, **GREEDY)
    text = whole.text
    size = next(n for n in range(2, 6) if n <= len(text))
    stop = text[7 : 7 + size]
    result = hw.generate("say hello", max_tokens=40, stop=[stop, "never said"], **GREEDY)
    [choice] = result.choices
    assert choice.text == text[: text.index(stop)]
    assert choice.finish_reason == "stop"
    assert result.usage.completion_tokens < whole.usage.completion_tokens
    said = "".join(p.text for p in hw.stream("say hello", max_tokens=40, stop=stop, **GREEDY))
    assert said == choice.text, "nothing of the stop string is ever streamed"


def test_characters_split_over_tokens_come_whole(hw, loaded, monkeypatch):
    """What is drawn is replaced: an emoji in four tokens, then a stop string in two."""
    script = iter([*loaded.tokenizer.encode("a🎉b"), *loaded.tokenizer.encode("<stop> and on")])
    run = hw._engine._runner.run

    def scripted(step, params):
        drawn = run(step, params)
        return type(drawn)([next(script) for _ in drawn.tokens], drawn.logprobs)

    monkeypatch.setattr(hw._engine._runner, "run", scripted)
    pieces = [piece.text for piece in hw.stream("x", max_tokens=40, stop="<stop>")]
    assert [text for text in pieces if text] == ["a", "🎉", "b"]


def test_log_probabilities_are_the_models(loaded, hw):
    result = hw.generate("the fox", max_tokens=3, logprobs=4, **GREEDY)
    prompt = loaded.tokenizer.encode("the fox")
    [choice] = result.choices
    with torch.inference_mode(), loaded.model.own_attention() as net:
        ids = torch.tensor([prompt + choice.tokens])
        rows = net(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
    for at, found in enumerate(choice.logprobs):
        row = rows[len(prompt) - 1 + at]
        assert found.drawn == pytest.approx(row[choice.tokens[at]].item(), abs=1e-4)
        assert [token for token, _ in found.top] == row.topk(4).indices.tolist()
        assert found.top[0] == (choice.tokens[at], found.drawn)


def test_a_sequence_fills_the_context_exactly(hw):
    fits = hw.generate([7] * (CONTEXT - 3), max_tokens=50, **GREEDY)
    assert fits.usage.completion_tokens == 3
    assert fits.choices[0].finish_reason == "length"
    assert hw.generate([7] * CONTEXT, max_tokens=50, **GREEDY).usage.completion_tokens == 1
    with pytest.raises(BadRequest, match=f"has {CONTEXT + 1} tokens, but the model's context"):
        hw.generate([7] * (CONTEXT + 1))


def test_an_answer_that_outgrows_the_pool_ends_with_length(engine):
    small = engine(kv_memory="8 pages", page=4)
    result = small.generate([7] * 20, max_tokens=100, **GREEDY)
    assert result.choices[0].finish_reason == "length"
    assert 10 <= result.usage.completion_tokens <= 13
    with pytest.raises(BadRequest, match="the KV memory holds 32"):
        small.generate([7] * 33)


def test_no_cache_reuses_nothing_and_answers_the_same(engine, hw):
    plain = engine(cache="none")
    for _ in range(2):
        result = plain.generate("the quick fox", max_tokens=8, **GREEDY)
        assert result.usage.cached_tokens == 0
    assert result.choices == hw.generate("the quick fox", max_tokens=8, **GREEDY).choices
    assert plain.stats().pages.free == plain.stats().pages.total


def test_stats_count_every_token_once(hw):
    for _ in range(3):
        hw.generate("the quick brown fox", n=2, max_tokens=5, ignore_eos=True)
    stats = hw.stats()
    tokens, pages = stats.tokens, stats.pages
    assert stats.requests == 3
    assert tokens.prompt == tokens.reused + tokens.computed
    assert tokens.reused == 2 * (tokens.prompt // 3 - 1)
    assert tokens.generated == 30
    assert pages.total == pages.free + pages.cached + pages.private + pages.in_io == 64
    assert (stats.running, stats.waiting, pages.private, pages.pinned) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("prompt", "asked", "said"),
    [
        ("", {}, "The prompt is empty"),
        ([], {}, "The prompt is empty"),
        (None, {}, "A prompt is a text"),
        ({}, {}, "A prompt is a text"),
        ([1.5], {}, "A prompt is a text"),
        ([True], {}, "A prompt is a text"),
        ([[1], [2, 3]], {}, "A prompt is a text"),
        ([-1], {}, "Token ids must lie in"),
        ([10_000], {}, "Token ids must lie in"),
        ([{"role": "user"}], {}, "needs a role and content"),
        ("x", {"max_tokens": 0}, "max_tokens and n must be at least 1"),
        ("x", {"max_tokens": "9"}, "max_tokens: Expected `int`, got `str`"),
        ("x", {"temperature": -1}, "temperature must be 0 or more"),
        ("x", {"temperature": float("nan")}, "temperature must be 0 or more"),
        ("x", {"top_p": 0}, "top_p must lie in"),
        ("x", {"top_k": 0}, "top_k must be 1 or more"),
        ("x", {"logprobs": 21}, "logprobs must lie in"),
        ("x", {"n": 257}, "n is 257, but at most 256 can run at once"),
        ("x", {"n": 10**12}, "at most 256 can run at once"),
        ("x", {"n": 0}, "max_tokens and n must be at least 1"),
        ("x", {"priority": 2**40}, "priority: Expected `int` <= 2147483647"),
        ("x", {"stop_token_ids": [-1]}, "stop_token_ids[0]: Expected `int` >= 0"),
        ("x", {"domain": "\ud800"}, "no Unicode at character 0"),
        ("x", {"stop": "\ud800"}, "no Unicode"),
        ("half a \ud83d", {}, "no Unicode at character 7"),
        ([{"role": "user", "content": "\ud800"}], {}, "no Unicode"),
        ("x", {"stop": ["a", ""]}, "A stop string is empty"),
        ("x", {"stop": 3}, "stop: Expected"),
    ],
)
def test_a_bad_request_costs_one_sentence_and_nothing_else(hw, prompt, asked, said):
    with pytest.raises(BadRequest) as caught:
        hw.generate(prompt, **asked)
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")
    assert hw.healthy
    assert hw.stats().pages.free == 64


def test_an_unknown_keyword_is_named(hw):
    with pytest.raises(TypeError, match="'tempreature'"):
        hw.generate("x", tempreature=1.0)


def test_a_loaded_model_keeps_its_number_format(loaded):
    with pytest.raises(headwater.BadSetting, match="keeps its number format"):
        headwater.Headwater(loaded, dtype="bfloat16")


def test_an_unknown_option_is_named(loaded):
    with pytest.raises(TypeError, match="'kv_size'"):
        headwater.Headwater(loaded, kv_size=1)


def test_numbers_of_any_size_are_harmless(hw):
    asked = {"max_tokens": 10**30, "seed": 10**400, "stop": "never", "temperature": 1e300}
    assert hw.generate([7] * 250, **asked).choices[0].finish_reason in ("stop", "length")


def test_the_typed_keywords_are_the_checked_ones():
    assert set(Named.__annotations__) == set(Options.__struct_fields__)
    assert set(Asked.__annotations__) == set(Wanted.__struct_fields__)
    assert set(SamplingParams.__struct_fields__) < set(Wanted.__struct_fields__)


def test_leaving_the_block_finishes_what_runs(engine):
    with engine() as hw:
        running = [hw.submit(f"fox {n}", max_tokens=15, ignore_eos=True) for n in range(4)]
    assert [each.result().usage.completion_tokens for each in running] == [15] * 4
    hw.close()


def test_leaving_the_block_by_an_error_cancels_what_runs(engine):
    hw = engine()
    running = []

    def work():
        with hw:
            running.append(hw.submit("fox", max_tokens=200, ignore_eos=True))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with pytest.raises(headwater.Cancelled):
        running[0].result()


def test_an_unknown_way_to_close_is_refused(hw):
    with pytest.raises(headwater.BadSetting, match="drain or cancel"):
        hw.close("later")
    assert hw.healthy


def test_a_closed_engine_says_so(engine):
    hw = engine()
    hw.close()
    assert not hw.healthy
    for ask in (lambda: hw.generate("x"), hw.stats):
        with pytest.raises(headwater.EngineStopped, match="closed"):
            ask()


def test_result_gives_up_waiting_without_giving_up_the_request(hw, monkeypatch):
    held, run = threading.Event(), hw._engine._runner.run

    def held_run(step, params):
        held.wait(10)
        return run(step, params)

    monkeypatch.setattr(hw._engine._runner, "run", held_run)
    generation = hw.submit("x", max_tokens=2, ignore_eos=True)
    with pytest.raises(TimeoutError):
        generation.result(timeout=0.05)
    held.set()
    assert isinstance(next(iter(generation)), Piece)
