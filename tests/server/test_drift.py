"""Conversations of several turns hit up to the first token that really differs.

The parrot draws `the` and `fox` a byte a token; read again as text, each becomes one token. That
is the first difference for who sends text back, and none for who goes on by name.
"""

from __future__ import annotations

import pytest

from headwater.cache.tokens import common_prefix, count, pack
from tests.server.live import said
from tests.server.models import SAYING

TURNS = ("Tell me about the lazy dog", "And the fox?", "What does it say?")


@pytest.fixture
def client(parrot):
    parrot.forget()
    return parrot.openai()


@pytest.fixture
def tokenizer(parrot):
    return parrot.hw.loaded.tokenizer


def test_chat_hits_all_of_the_turn_before_but_what_reads_otherwise(client, tokenizer):
    messages, computed = [], b""
    for turn in TURNS:
        messages += said(turn)
        done = client.chat.completions.create(model="parrot", messages=messages, logprobs=True)
        prompt = pack(tokenizer.encode_chat(messages))
        shared = common_prefix(prompt, computed)
        assert done.usage.prompt_tokens == count(prompt)
        assert done.usage.prompt_tokens_details.cached_tokens == shared
        # What was computed: the prompt and all that was drawn, but for the last.
        computed = prompt + pack(_drawn(tokenizer)[:-1])
        messages.append({"role": "assistant", "content": done.choices[0].message.content})
    assert shared > count(pack(tokenizer.encode_chat(said(TURNS[0]))))


def _drawn(tokenizer):
    """The tokens of the parrot's answer: a byte each, and the end."""
    single = {tokenizer.bytes_of(token): token for token in range(300) if token > 1}
    return [single[bytes([byte])] for byte in SAYING.encode()] + [1]


def test_completions_of_token_ids_hit_every_token_that_was_computed(client, tokenizer):
    prompt = tokenizer.encode_chat(said(TURNS[0]))
    computed = 0
    for turn in TURNS:
        done = client.completions.create(model="parrot", prompt=prompt, max_tokens=50, logprobs=0)
        assert done.usage.prompt_tokens_details.cached_tokens == computed
        drawn = _drawn(tokenizer)
        assert done.usage.completion_tokens == len(drawn)
        computed = len(prompt) + len(drawn) - 1
        prompt = prompt + drawn + tokenizer.encode_rendered(f"\n<|start|>user\n{turn}<|end|>\n")
        prompt += tokenizer.encode_rendered("<|start|>assistant\n")


def test_completions_of_text_hit_up_to_the_first_other_token(client, tokenizer):
    text, computed = "Once upon a time\n", b""
    for _ in TURNS:
        done = client.completions.create(model="parrot", prompt=text, max_tokens=50)
        prompt = pack(tokenizer.encode(text))
        assert done.usage.prompt_tokens_details.cached_tokens == common_prefix(prompt, computed)
        computed = prompt + pack(_drawn(tokenizer)[:-1])
        text += done.choices[0].text + "\nOnce more\n"


def test_responses_hit_everything_by_name(client):
    before = None
    for turn in TURNS:
        done = client.responses.create(
            model="parrot", input=turn, previous_response_id=before.id if before else None
        )
        if before is not None:
            cached = done.usage.input_tokens_details.cached_tokens
            assert cached == before.usage.total_tokens - 1
        before = done


def test_the_report_shows_where_a_conversation_drifts(client):
    messages = said(TURNS[0])
    done = client.chat.completions.create(model="parrot", messages=messages)
    messages.append({"role": "assistant", "content": done.choices[0].message.content})
    again = client.chat.completions.create(
        model="parrot",
        messages=messages + said(TURNS[1]),
        extra_body={"headwater": {"report": True}},
    )
    why = again.model_extra["headwater"]["cache"][0]["why"]
    assert why["kind"] == "diverged"
    assert why["before"].endswith("assistant\n")
    assert why["after"].startswith("the🙂")
