"""The engine without a server: prewarm a document, ask, see where the tokens came from.

python examples/library.py [MODEL]
"""

from __future__ import annotations

import sys

from headwater import Headwater

DOCUMENT = "Three mills stood on the river once; one of them still grinds corn."


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else None
    with Headwater(model, kv_memory="256MiB") as hw:
        document = {"role": "system", "content": DOCUMENT}
        for question in ("What stood on the river?", "How many still grind?"):
            messages = [document, {"role": "user", "content": question}]
            before = hw.cache.explain(hw.tokens(messages))
            result = hw.generate(messages, max_tokens=32, temperature=0.0)
            print(question, "\n ", result.text)
            print(f"  {before.cached_tokens} of {result.usage.prompt_tokens} tokens were cached:")
            print(" ", result.cache.why.sentence)


if __name__ == "__main__":
    main()
