"""`/v1/messages` through Anthropic's own client."""

from __future__ import annotations

import anthropic
import pytest

from tests.server.live import ALICE, said
from tests.server.models import CONTEXT, SAYING

BYTES = len(SAYING.encode())
BREAK = {"type": "ephemeral"}


@pytest.fixture
def messages(parrot):
    return parrot.anthropic().messages


@pytest.fixture
def ask(messages):
    def ask(message="Hello", **named):
        return messages.create(
            model="parrot", **({"messages": said(message), "max_tokens": 50} | named)
        )

    return ask


def test_an_answer_is_what_the_model_says(ask):
    done = ask()
    [block] = done.content
    assert (block.type, block.text) == ("text", SAYING)
    assert (done.role, done.stop_reason, done.stop_sequence) == ("assistant", "end_turn", None)
    assert done.usage.output_tokens == BYTES + 1


def test_a_stream_says_the_same_in_whole_characters(messages):
    with messages.stream(model="parrot", messages=said(), max_tokens=50) as stream:
        texts = list(stream.text_stream)
        done = stream.get_final_message()
    assert "".join(texts) == SAYING
    assert "🙂" in texts
    assert done.content[0].text == SAYING
    assert done.stop_reason == "end_turn"
    assert done.usage.output_tokens == BYTES + 1


@pytest.mark.parametrize("stop", ["é中", "fox."])
def test_a_stop_sequence_is_named(ask, messages, stop):
    named = {"stop_sequences": ["nowhere", stop]}
    done = ask(**named)
    assert (done.stop_reason, done.stop_sequence) == ("stop_sequence", stop)
    assert done.content[0].text == SAYING[: SAYING.index(stop)]
    with messages.stream(model="parrot", messages=said(), max_tokens=50, **named) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[0].text == done.content[0].text
    assert (streamed.stop_reason, streamed.stop_sequence) == ("stop_sequence", stop)


def test_a_stop_sequence_that_did_not_come_is_not_named(ask):
    done = ask(stop_sequences=["fox!"])
    assert (done.stop_reason, done.stop_sequence) == ("end_turn", None)


def test_an_answer_ends_at_its_length(ask):
    done = ask(max_tokens=3)
    assert (done.content[0].text, done.stop_reason) == ("the", "max_tokens")


def _usage(usage):
    return (
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
        usage.input_tokens,
    )


def test_usage_tells_what_was_read_written_and_neither(parrot, ask, messages):
    parrot.forget()
    system = [{"type": "text", "text": "the quick brown fox " * 5, "cache_control": BREAK}]
    whole = messages.count_tokens(model="parrot", system=system, messages=said("One")).input_tokens
    read, written, rest = _usage(ask("One", system=system).usage)
    assert read == 0
    assert 0 < written < whole
    assert read + written + rest == whole
    again = _usage(ask("Two", system=system).usage)
    assert again[0] >= written
    assert again[1] == 0
    assert sum(again) == whole  # `One` and `Two` are as long
    with messages.stream(
        model="parrot", messages=said("Two"), max_tokens=9, system=system
    ) as stream:
        last = stream.get_final_message().usage
    assert _usage(last) == (whole - 1, 0, 1)


def test_without_breakpoints_nothing_counts_as_written(parrot, ask):
    parrot.forget()
    read, written, rest = _usage(ask().usage)
    assert (read, written) == (0, 0)
    assert rest > 0


@pytest.mark.parametrize("where", ["message", "tools", "request"])
def test_breakpoints_may_stand_anywhere(parrot, ask, messages, where):
    tool = {"name": "weather", "input_schema": {"type": "object"}}
    text = {"type": "text", "text": "the lazy dog"}
    named = {"tools": [tool], "messages": [{"role": "user", "content": [text]}]}
    if where == "message":
        text["cache_control"] = BREAK
    elif where == "tools":
        tool["cache_control"] = BREAK
    else:
        named["extra_body"] = {"cache_control": BREAK}
    parrot.forget()
    whole = messages.count_tokens(model="parrot", **named).input_tokens
    read, written, rest = _usage(ask(**named).usage)
    assert read + written + rest == whole
    assert written > 0
    assert (rest > 0) == (where == "tools")


def test_a_conversation_with_a_tool_goes_on(ask):
    use = {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "Rain."}
    messages = [
        *said("How is it?"),
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
    ]
    done = ask(messages=messages, tools=[{"name": "weather", "input_schema": {"type": "object"}}])
    assert done.content[0].text == SAYING


def test_tokens_are_counted_as_they_would_be_used(ask, messages):
    counted = messages.count_tokens(model="parrot", system="Be short.", messages=said("Hello"))
    assert counted.input_tokens == sum(_usage(ask(system="Be short.").usage))


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "king"),
        ({"messages": [{"role": {}, "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "image"),
        ({"messages": said("x" * CONTEXT)}, "shorten the prompt"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
    ],
)
def test_errors_have_anthropics_shape(ask, named, what):
    with pytest.raises(anthropic.BadRequestError, match=what) as told:
        ask(**named)
    assert told.value.body["type"] == "error"
    assert told.value.body["error"]["type"] == "invalid_request_error"


def test_a_wrong_key_is_told_so(keyed):
    with pytest.raises(anthropic.AuthenticationError) as told:
        keyed.anthropic("nobody's-key-at-all").messages.create(
            model="parrot", messages=said(), max_tokens=1
        )
    assert told.value.body["error"]["type"] == "authentication_error"
    keyed.anthropic(ALICE).messages.create(model="parrot", messages=said(), max_tokens=1)


def test_harmless_fields_are_taken(ask):
    done = ask(
        metadata={"user_id": "x"},
        service_tier="auto",
        thinking={"type": "disabled"},
        tool_choice={"type": "auto"},
    )
    assert done.content[0].text == SAYING


def test_the_report_is_told_to_who_asks_for_it(ask):
    told = ask(extra_body={"headwater": {"report": True}}).model_extra["headwater"]
    assert told["cache"][0]["generated"] == BYTES + 1
