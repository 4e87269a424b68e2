"""Headwater behind the same verbs, through its public Python interface and nothing below it."""

from __future__ import annotations

import random
import time
from importlib.metadata import version
from typing import Any


class Peer:
    """`churn` is ours alone: it ages the pool, as weeks of other people's requests would."""

    def __init__(self) -> None:
        self._hw: Any = None

    def load(self, model: str, dtype: str, threads: int, kv_gib: float) -> dict[str, Any]:
        import torch

        from headwater import Headwater

        torch.set_num_threads(threads)
        self._hw = Headwater(model, dtype=dtype, kv_memory=int(kv_gib * 2**30))
        return {"name": "Headwater", "version": version("headwater")}

    def cold(self, tokens: list[int]) -> float:
        return self.decode([tokens], 1)

    def hit(self, tokens: list[int]) -> float:
        return self.decode([tokens], 1)

    def decode(self, prompts: list[list[int]], new_tokens: int) -> float:
        start = time.perf_counter()
        running = [self._submit(prompt, new_tokens) for prompt in prompts]
        made = [len(request.result().choices[0].tokens) for request in running]
        seconds = time.perf_counter() - start
        if made != [new_tokens] * len(prompts):
            raise RuntimeError(f"asked for {new_tokens} tokens each, got {made}")
        return seconds

    def churn(self, requests: int, seed: int) -> int:
        """Run many short requests of mixed lengths, some of which go on from earlier ones.

        Returns how many prompt tokens that was.
        """
        rng = random.Random(seed)
        earlier: list[list[int]] = []
        total = 0
        for _ in range(0, requests, 32):
            prompts = []
            for _ in range(32):
                stem = rng.choice(earlier) if earlier and rng.random() < 0.3 else []
                prompts.append(
                    stem + [rng.randrange(100, 40_000) for _ in range(rng.randrange(4, 90))]
                )
            running = [self._submit(prompt, rng.randrange(1, 4)) for prompt in prompts]
            for request in running:
                request.result()
            earlier = (earlier + prompts)[-256:]
            total += sum(map(len, prompts))
        return total

    def _submit(self, prompt: list[int], new_tokens: int) -> Any:
        return self._hw.submit(prompt, max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
