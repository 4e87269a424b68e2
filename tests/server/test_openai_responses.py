"""`/v1/responses` through OpenAI's own client."""

from __future__ import annotations

import openai
import pytest

from headwater.server.conversations import Conversations, Turn
from tests.server.live import ALICE, BOB
from tests.server.models import SAYING

BYTES = len(SAYING.encode())


@pytest.fixture
def responses(parrot):
    return parrot.openai().responses


def test_a_response_is_what_the_model_says(responses):
    done = responses.create(model="parrot", input="Hello")
    assert done.output_text == SAYING
    assert done.status == "completed"
    assert done.usage.output_tokens == BYTES + 1
    assert done.usage.input_tokens_details.cached_tokens <= done.usage.input_tokens


def test_a_response_can_be_retrieved_and_deleted(responses):
    done = responses.create(model="parrot", input="Hello", metadata={"a": "b"})
    assert responses.retrieve(done.id) == done
    responses.delete(done.id)
    for gone in (responses.retrieve, responses.delete):
        with pytest.raises(openai.NotFoundError, match="There is no response"):
            gone(done.id)


def test_what_is_not_stored_cannot_be_continued(responses):
    done = responses.create(model="parrot", input="Hello", store=False)
    with pytest.raises(openai.NotFoundError) as told:
        responses.create(model="parrot", input="And?", previous_response_id=done.id)
    assert told.value.code == "previous_response_not_found"


def test_a_response_is_streamed_event_by_event(responses):
    events = list(responses.create(model="parrot", input="Hello", stream=True))
    kinds = [event.type for event in events]
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == SAYING
    assert "🙂" in texts
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert responses.retrieve(events[-1].response.id) == events[-1].response


def test_a_response_that_was_cut_says_so(responses):
    done = responses.create(model="parrot", input="Hello", max_output_tokens=3)
    assert (done.output_text, done.status) == ("the", "incomplete")
    assert done.incomplete_details.reason == "max_output_tokens"
    streamed = responses.create(model="parrot", input="Hello", max_output_tokens=3, stream=True)
    assert list(streamed)[-1].type == "response.incomplete"


def test_a_conversation_goes_on_with_the_tokens_that_were_drawn(responses):
    """All that was computed is reused: the prompt, the answer as drawn, and no token less."""
    first = responses.create(model="parrot", input="Begin")
    second = responses.create(model="parrot", input="Go on", previous_response_id=first.id)
    third = responses.create(model="parrot", input="Go on", previous_response_id=second.id)
    for before, after in ((first, second), (second, third)):
        # Of the last token drawn, which ended it, no KV was needed.
        assert after.usage.input_tokens_details.cached_tokens >= before.usage.total_tokens - 1
        assert after.output_text == SAYING


def test_a_cut_answer_goes_on_with_its_tokens_as_well(responses):
    first = responses.create(model="parrot", input="Cut", max_output_tokens=5)  # in mid-character
    second = responses.create(model="parrot", input="Go on", previous_response_id=first.id)
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1


def test_instructions_are_those_of_the_last_turn_that_gave_some(responses):
    first = responses.create(model="parrot", input="Hi", instructions="Be short.")
    kept = responses.create(model="parrot", input="Hi", previous_response_id=first.id)
    assert kept.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1
    other = responses.create(
        model="parrot", input="Hi", previous_response_id=first.id, instructions="Xylophones!"
    )
    assert other.usage.input_tokens_details.cached_tokens < first.usage.input_tokens


def test_messages_are_taken_in_parts(responses):
    parts = [{"type": "input_text", "text": "He"}, {"type": "input_text", "text": "llo"}]
    one = responses.create(model="parrot", input=[{"role": "user", "content": parts}])
    other = responses.create(model="parrot", input="Hello")
    assert one.usage.input_tokens == other.usage.input_tokens


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "messages"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "include": ["reasoning.encrypted_content"]}, "include"),
        ({"input": "x", "text": {"format": {"type": "json_object"}}}, "text"),
        (
            {"input": "x", "tools": [{"type": "web_search"}], "tool_choice": "required"},
            "tool_choice",
        ),
    ],
)
def test_what_cannot_be_is_refused(responses, named, what):
    with pytest.raises(openai.BadRequestError, match=what):
        responses.create(model="parrot", **named)


def test_a_response_is_nobody_elses(keyed):
    alice, bob = keyed.openai(ALICE).responses, keyed.openai(BOB).responses
    done = alice.create(model="parrot", input="Mine")
    for ask in (
        lambda: bob.retrieve(done.id),
        lambda: bob.delete(done.id),
        lambda: bob.create(model="parrot", input="x", previous_response_id=done.id),
    ):
        with pytest.raises(openai.NotFoundError, match="There is no response"):
            ask()
    assert alice.retrieve(done.id).output_text == SAYING


def _turn(size):
    return Turn(messages=[], rendered="", prompt=b"", answer=b"", text="", body=bytes(size))


def test_who_fills_the_memory_for_conversations_fills_it_with_their_own():
    kept = Conversations(most=10 * _turn(1000).size)
    kept.keep("quiet", "only", _turn(1000))
    for number in range(50):
        kept.keep("loud", str(number), _turn(1000))
    assert kept.find("quiet", "only") is not None
    assert kept.find("loud", "0") is None
    assert kept.find("loud", "49") is not None
    assert kept.drop("quiet", "only")
    assert not kept.drop("quiet", "only")
