"""`/v1/completions` through OpenAI's own client."""

from __future__ import annotations

import openai
import pytest

from tests.server.live import said

TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.fixture
def complete(babbler):
    """Asks the model of random weights."""
    create = babbler.openai().completions.create

    def ask(prompt=TEXT, **named):
        return create(
            model="babbler", prompt=prompt, **({"temperature": 0, "max_tokens": 6} | named)
        )

    return ask


@pytest.fixture(scope="module")
def ids(models):
    return models["babbler"].tokenizer.encode(TEXT)


def test_a_text_and_its_tokens_are_the_same_prompt(complete, ids):
    one, other = complete(), complete(ids)
    assert one.choices[0].text == other.choices[0].text
    assert other.usage.prompt_tokens == len(ids)
    assert other.usage.prompt_tokens_details.cached_tokens == len(ids) - 1


def test_lists_of_prompts_are_answered_in_their_order(complete, ids):
    several = complete([TEXT, "hello to the world"], n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    texts = [choice.text for choice in several.choices]
    alone = [complete(TEXT).choices[0].text, complete("hello to the world").choices[0].text]
    assert texts == [alone[0], alone[0], alone[1], alone[1]]
    assert complete([ids, ids[:4]]).choices[0].text == alone[0]
    assert several.usage.completion_tokens == 24


def test_lists_of_prompts_are_streamed_side_by_side(complete):
    prompts = [TEXT, "hello to the world", "jumps"]
    texts = [""] * 3
    *chunks, last = complete(prompts, stream=True, stream_options={"include_usage": True})
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in complete(prompts).choices]
    assert last.usage.completion_tokens == 18


def test_an_echo_comes_before_the_answer(complete):
    plain = complete().choices[0].text
    assert complete(echo=True).choices[0].text == TEXT + plain


def test_an_echo_alone_draws_nothing(complete, ids):
    done = complete(echo=True, max_tokens=0, logprobs=2)
    [choice] = done.choices
    assert choice.text == TEXT
    assert done.usage.completion_tokens == 0
    assert len(choice.logprobs.tokens) == len(ids)


def test_log_probabilities_of_the_prompt_do_not_depend_on_the_cache(babbler, complete, ids):
    babbler.forget()
    fresh = complete(echo=True, max_tokens=1, logprobs=2).choices[0].logprobs
    assert complete().usage.prompt_tokens_details.cached_tokens == len(ids) - 1  # now it is cached
    again = complete(echo=True, max_tokens=1, logprobs=2).choices[0].logprobs
    assert fresh.tokens == again.tokens
    assert fresh.token_logprobs[0] is None
    assert again.token_logprobs[1:] == pytest.approx(fresh.token_logprobs[1:], abs=1e-4)
    for one, other in zip(fresh.top_logprobs[1:], again.top_logprobs[1:], strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    unread = complete(
        echo=True, max_tokens=1, logprobs=2, extra_body={"headwater": {"read": False}}
    )
    assert unread.choices[0].logprobs.token_logprobs[1:] == pytest.approx(
        fresh.token_logprobs[1:], abs=1e-4
    )


def test_log_probabilities_say_where_their_tokens_stand(complete):
    [choice] = complete(echo=True, logprobs=1).choices
    entries = choice.logprobs
    assert entries.text_offset[0] == 0
    for offset, token in zip(entries.text_offset, entries.tokens, strict=True):
        assert choice.text[offset : offset + len(token)] == token


def test_log_probabilities_are_streamed(complete):
    whole = complete(logprobs=1).choices[0].logprobs
    tokens, values, offsets = [], [], []
    for chunk in complete(logprobs=1, stream=True):
        if chunk.choices and chunk.choices[0].logprobs:
            tokens += chunk.choices[0].logprobs.tokens
            values += chunk.choices[0].logprobs.token_logprobs
            offsets += chunk.choices[0].logprobs.text_offset
    assert tokens == whole.tokens
    assert offsets == whole.text_offset
    assert values == pytest.approx(whole.token_logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [10**6]}, "vocabulary"),
        ({"prompt": [-1]}, "vocabulary"),
        ({"prompt": [2**70]}, "prompt"),
        ({"prompt": ["a"] * 200}, "128 answers"),
        ({"prompt": ["a"] * 20, "n": 20}, "128 answers"),
        ({"prompt": [[1, 2]] * 3 + [[2**31]]}, "vocabulary"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"echo": True, "stream": True}, "echo"),
        ({"logprobs": 99}, "logprobs"),
        ({"stop": ["a"] * 30}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
    ],
)
def test_what_cannot_be_is_refused(complete, named, what):
    with pytest.raises(openai.BadRequestError, match=what):
        complete(**named)


def test_one_bad_prompt_of_many_leaves_nothing_behind(babbler, complete):
    with pytest.raises(openai.BadRequestError):
        complete([[5, 6, 7], [8, 9], [10**6]])
    assert (
        babbler.http()
        .post("/v1/chat/completions", json={"messages": said(), "max_tokens": 1})
        .is_success
    )
