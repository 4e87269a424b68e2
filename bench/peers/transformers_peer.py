"""Plain transformers: no cache between requests, and the bare forward that a hit comes down to."""

from __future__ import annotations

import time
from typing import Any


class Peer:
    """`hit` is a floor, not a service: a forward of what is missing, on a context kept by hand."""

    def __init__(self) -> None:
        self._model: Any = None
        self._context: Any = None  # a DynamicCache over `_known`
        self._known: list[int] = []

    def load(self, model: str, dtype: str, threads: int, kv_gib: float) -> dict[str, Any]:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=getattr(torch, dtype)
        ).eval()
        return {"name": "transformers", "version": transformers.__version__}

    def cold(self, tokens: list[int]) -> float:
        """One forward over the whole prompt."""
        from transformers import DynamicCache

        context = DynamicCache(config=self._model.config)
        seconds = self._forward(tokens, context)
        self._context, self._known = context, list(tokens)
        return seconds

    def hit(self, tokens: list[int]) -> float:
        """One forward over what follows the longest prefix shared with the last cold prompt."""
        shared = 0
        while (
            shared < min(len(tokens) - 1, len(self._known))
            and tokens[shared] == self._known[shared]
        ):
            shared += 1
        self._context.crop(shared - len(self._known))
        self._known = self._known[:shared]
        seconds = self._forward(tokens[shared:], self._context)
        self._context.crop(-(len(tokens) - shared))
        return seconds

    def decode(self, prompts: list[list[int]], new_tokens: int) -> float:
        """`generate` on the prompts, all of one length, as one batch."""
        import torch

        ids = torch.tensor(prompts)
        start = time.perf_counter()
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
        )
        return time.perf_counter() - start

    def _forward(self, tokens: list[int], context: Any) -> float:
        import torch

        with torch.inference_mode():
            start = time.perf_counter()
            ids = torch.tensor([tokens])
            logits = self._model(
                input_ids=ids, cache=context, use_cache=True, logits_to_keep=1
            ).logits
            int(logits[0, -1].argmax())
            return time.perf_counter() - start
