"""A conversation through OpenAI's client: each turn reuses the tokens of the turns before it.

python examples/conversation.py    with `headwater serve` running
"""

from __future__ import annotations

import os

from openai import OpenAI

URL = os.environ.get("HEADWATER_URL", "http://127.0.0.1:8000")
QUESTIONS = ("Name three rivers.", "Which of them is the longest?", "Where does it begin?")


def main() -> None:
    client = OpenAI(
        base_url=f"{URL}/v1", api_key=os.environ.get("HEADWATER_API_KEY", "not asked for")
    )
    model = client.models.list().data[0].id
    messages = [{"role": "system", "content": "Answer in one sentence."}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        answer = ""
        for chunk in client.chat.completions.create(
            model=model,
            messages=messages,
            max_tokens=48,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        ):
            for choice in chunk.choices:
                answer += choice.delta.content or ""
            if chunk.usage is not None:
                usage = chunk.usage
        messages.append({"role": "assistant", "content": answer})
        cached = usage.prompt_tokens_details.cached_tokens
        print(f"{question}\n  {answer}\n  [{cached} of {usage.prompt_tokens} tokens were cached]")


if __name__ == "__main__":
    main()
