"""`/v1/chat/completions` through OpenAI's own client."""

from __future__ import annotations

import openai
import pytest

from tests.server.live import ALICE, said
from tests.server.models import CONTEXT, SAYING

BYTES = len(SAYING.encode())
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}},
}


@pytest.fixture
def chat(parrot):
    """Asks the parrot."""
    create = parrot.openai().chat.completions.create

    def ask(message="Hello", **named):
        return create(model="parrot", **({"messages": said(message)} | named))

    return ask


@pytest.fixture
def babble(babbler):
    """Asks the model of random weights."""
    create = babbler.openai().chat.completions.create
    return lambda message="Hello", **named: create(model="babbler", messages=said(message), **named)


def test_an_answer_is_what_the_model_says(chat):
    done = chat()
    [choice] = done.choices
    assert (choice.message.role, choice.message.content) == ("assistant", SAYING)
    assert choice.finish_reason == "stop"
    assert done.object == "chat.completion"
    assert done.model == "parrot"


def test_usage_tells_what_was_cached(chat):
    first, second = chat("usage").usage, chat("usage").usage
    assert first.completion_tokens == BYTES + 1  # and the token that ends it
    assert first.total_tokens == first.prompt_tokens + first.completion_tokens
    assert first.prompt_tokens_details.cached_tokens < first.prompt_tokens - 1
    assert second.prompt_tokens_details.cached_tokens == second.prompt_tokens - 1


def test_a_stream_says_the_same_in_whole_characters(chat):
    chunks = list(chat(stream=True))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(texts) == SAYING
    assert "🙂" in texts  # of four tokens
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_ends_with_its_usage_when_asked_to(chat):
    *chunks, last = chat(stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage.completion_tokens == BYTES + 1
    assert all(chunk.usage is None for chunk in chunks)


def test_log_probabilities_are_of_the_tokens_that_were_drawn(chat):
    [choice] = chat(logprobs=True, top_logprobs=3).choices
    *drawn, end = choice.logprobs.content
    assert bytes(byte for each in drawn for byte in each.bytes) == SAYING.encode()
    assert end.bytes == []
    for each in drawn:
        assert each.logprob <= 0
        assert len(each.top_logprobs) == 3
        assert each.top_logprobs[0].bytes == each.bytes
        assert each.top_logprobs[0].logprob == pytest.approx(each.logprob)


def test_log_probabilities_come_in_a_stream_as_well(chat):
    chunks = list(chat(stream=True, logprobs=True))
    entries = [
        each for c in chunks if c.choices[0].logprobs for each in c.choices[0].logprobs.content
    ]
    assert bytes(byte for each in entries for byte in each.bytes) == SAYING.encode()
    assert all(each.top_logprobs == [] for each in entries)


def test_three_answers_to_one_prompt(babble):
    done = babble(n=3, seed=5, max_tokens=8)
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in done.choices}) == 3
    assert done.usage.completion_tokens == 24
    one = babble(max_tokens=8)
    assert done.usage.prompt_tokens == one.usage.prompt_tokens  # counted once


def test_three_answers_in_one_stream(babble):
    named = {"n": 3, "seed": 5, "max_tokens": 8}
    texts = ["", "", ""]
    for chunk in babble(stream=True, **named):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in babble(**named).choices]


def test_a_seed_draws_the_same_again(babble):
    def draw(seed):
        return babble(seed=seed, max_tokens=12).choices[0].message.content

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@pytest.mark.parametrize("stop", ["é中", ["nowhere", "é中"], ["fox", "é中"]])
def test_a_stop_string_may_lie_across_tokens(chat, stop):
    [choice] = chat(stop=stop).choices
    assert choice.message.content == "the🙂"
    assert choice.finish_reason == "stop"
    streamed = chat(stop=stop, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == "the🙂"


def test_what_might_have_become_a_stop_string_is_shown_at_the_end(chat):
    streamed = chat(stop="fox!", stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == SAYING


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_ends_at_its_length(chat, name):
    done = chat(**{name: 5})
    assert done.choices[0].finish_reason == "length"
    assert done.choices[0].message.content == "the\N{REPLACEMENT CHARACTER}"
    assert done.usage.completion_tokens == 5


def test_end_tokens_can_be_ignored(chat):
    done = chat(max_tokens=BYTES + 30, extra_body={"ignore_eos": True})
    assert done.usage.completion_tokens == BYTES + 30
    assert done.choices[0].finish_reason == "length"


def test_an_answer_ends_where_the_context_does(chat):
    done = chat("x" * (CONTEXT - 100), extra_body={"ignore_eos": True})
    assert done.usage.total_tokens == CONTEXT
    assert done.choices[0].finish_reason == "length"


# What the template is given


def test_tools_stand_in_the_prompt(chat):
    plain, shown = chat().usage, chat(tools=[TOOL]).usage
    assert shown.prompt_tokens > plain.prompt_tokens
    hidden = chat(tools=[TOOL], tool_choice="none").usage
    assert hidden.prompt_tokens == plain.prompt_tokens


def test_tools_that_would_not_be_shown_are_refused(babble):
    with pytest.raises(openai.BadRequestError, match="does not show tools"):
        babble(tools=[TOOL])


def test_a_conversation_with_a_tool_goes_on(chat):
    call = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    messages = [
        *said("How is it in Oslo?"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "Rain."},
    ]
    assert chat(messages=messages, tools=[TOOL]).choices[0].message.content == SAYING


def test_thinking_is_turned_off_for_the_template(chat):
    def tokens(**options):
        done = chat(extra_body={"chat_template_kwargs": options})
        assert done.choices[0].message.content == SAYING
        return done.usage.prompt_tokens

    assert tokens() == tokens(enable_thinking=True) < tokens(enable_thinking=False)


def test_a_template_cannot_be_replaced_by_a_request(chat):
    with pytest.raises(openai.BadRequestError, match="is not for a request to say"):
        chat(extra_body={"chat_template_kwargs": {"chat_template": "{{ 1 }}"}})


# What is refused, and what is taken


def test_a_wrong_key_is_told_so(keyed):
    for key, what in (("nobody's-key-at-all", "unknown"), (ALICE + "x", "unknown")):
        with pytest.raises(openai.AuthenticationError, match=what) as told:
            keyed.openai(key).chat.completions.create(model="parrot", messages=said())
        assert told.value.code == "invalid_api_key"
    keyed.openai(ALICE).chat.completions.create(model="parrot", messages=said(), max_tokens=1)


@pytest.mark.parametrize("size", [CONTEXT, 100_000])
def test_a_prompt_that_is_too_long_has_the_code_that_clients_know(chat, size):
    with pytest.raises(openai.BadRequestError, match="shorten the prompt") as told:
        chat("x" * size)
    assert told.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("named", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
        ({"extra_body": {"headwater": {"reed": False}}}, "headwater"),
        ({"extra_body": {"min_p": 0.1}}, "min_p"),
        ({"extra_body": {"stop_token_ids": [-1]}}, None),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(chat, named, param):
    with pytest.raises(openai.BadRequestError) as told:
        chat(**named)
    assert told.value.type == "invalid_request_error"
    if param is None:
        assert told.value.message
    else:
        assert told.value.param in (param, f"{param}.role")
        assert param.partition("[")[0] in told.value.message


def test_harmless_fields_are_taken(chat):
    taken = chat(
        user="me",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        frequency_penalty=0,
        presence_penalty=0.0,
        response_format={"type": "text"},
        parallel_tool_calls=True,
        prompt_cache_key="x",
        logit_bias={},
        extra_body={"n": None, "stop": None, "seed": None, "logprobs": None, "headwater": None},
    )
    assert taken.choices[0].message.content == SAYING


def test_another_model_is_not_found(parrot):
    with pytest.raises(openai.NotFoundError, match="'parrot' is") as told:
        parrot.openai().chat.completions.create(model="gpt-9", messages=said())
    assert told.value.code == "model_not_found"


def test_the_model_is_listed(parrot):
    client = parrot.openai()
    assert [model.id for model in client.models.list()] == ["parrot"]
    assert client.models.retrieve("parrot").owned_by == "headwater"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other/model")


@pytest.mark.parametrize(
    "what", ["embeddings", "moderations", "images/generations", "audio/speech"]
)
def test_what_is_not_served_is_not_found_in_openais_shape(parrot, what):
    found = parrot.http().post(f"/v1/{what}", json={"model": "parrot", "input": "x"})
    assert found.status_code == 404
    assert found.json()["error"]["type"] == "not_found_error"


# The report


def test_the_report_is_told_to_who_asks_for_it(chat):
    def told(**named):
        return chat(**named).model_extra.get("headwater")

    assert told() is None
    assert told(extra_body={"headwater": {"report": False}}) is None
    for asked in (
        {"extra_body": {"headwater": {"report": True}}},
        {"extra_headers": {"X-Headwater-Report": "1"}},
    ):
        [cache] = told(**asked)["cache"]
        assert sum(cache["sources"].values()) == chat().usage.prompt_tokens
        assert cache["why"]["kind"] == "all_reused"


def test_the_report_comes_at_the_end_of_a_stream(chat):
    *chunks, last = chat(stream=True, extra_body={"headwater": {"report": True}})
    assert last.choices == []
    assert last.model_extra["headwater"]["cache"][0]["generated"] == BYTES + 1
    assert not any("headwater" in chunk.model_extra for chunk in chunks)
