"""Many questions about one document: its KV is computed once, kept, and read by all of them.

python examples/fan_out.py    with `headwater serve` running
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import httpx2

URL = os.environ.get("HEADWATER_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("HEADWATER_API_KEY", "not asked for")
DOCUMENT = (
    "The river rises in the hills, runs west for forty miles and joins the sea at the old town. "
    "Salmon climb it in autumn. Three mills stood on it once; one of them still grinds corn."
)
QUESTIONS = ("Where does the river rise?", "What climbs it?", "How many mills still grind?")


def main() -> None:
    with httpx2.Client(
        base_url=URL, headers={"Authorization": f"Bearer {KEY}"}, timeout=600
    ) as http:
        document = {"role": "system", "content": DOCUMENT}
        # Computed now, while nobody waits for it, and kept for an hour.
        receipt = post(http, "/v1/cache/pin", {"messages": [document], "ttl": 3600})
        print(f"{receipt['pinned_tokens']} of {receipt['prompt_tokens']} tokens are pinned")

        def ask(question: str) -> str:
            messages = [document, {"role": "user", "content": question}]
            answer = post(
                http,
                "/v1/chat/completions",
                {"messages": messages, "max_tokens": 32, "temperature": 0},
            )
            usage = answer["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            said = answer["choices"][0]["message"]["content"]
            return f"{question}\n  {said}\n  [{cached} of {usage['prompt_tokens']} tokens cached]"

        with ThreadPoolExecutor() as pool:
            for line in pool.map(ask, QUESTIONS):
                print(line)
        http.delete(f"/v1/cache/pin/{receipt['id']}").raise_for_status()


def post(http: httpx2.Client, path: str, body: dict) -> dict:
    """What the server answers. Raises when it refuses."""
    answer = http.post(path, json=body)
    answer.raise_for_status()
    return answer.json()


if __name__ == "__main__":
    main()
