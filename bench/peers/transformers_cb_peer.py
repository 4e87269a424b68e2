"""transformers' continuous batching, with its block sharing, behind the bench's verbs."""

from __future__ import annotations

import time
from typing import Any


class Peer:
    """One manager, whose thread and cache live as long as the process."""

    def __init__(self) -> None:
        self._manager: Any = None

    def load(self, model: str, dtype: str, threads: int, kv_gib: float) -> dict[str, Any]:
        import torch
        import transformers
        from transformers import ContinuousBatchingConfig, GenerationConfig

        torch.set_num_threads(threads)
        net = transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=getattr(torch, dtype)
        ).eval()
        config = net.config
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kv = 2 * config.num_hidden_layers * config.num_key_value_heads * head * net.dtype.itemsize
        # Sized by hand: its own sizing asks the driver of an accelerator, and there is none.
        how = ContinuousBatchingConfig(
            page_size=32, num_blocks=int(kv_gib * 2**30 / (32 * kv)), max_batch_tokens=512
        )
        greedy = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=1)
        self._manager = net.init_continuous_batching(
            generation_config=greedy, continuous_batching_config=how
        )
        self._manager.start()
        return {"name": "transformers continuous batching", "version": transformers.__version__}

    def cold(self, tokens: list[int]) -> float:
        return self.decode([tokens], 1)

    def hit(self, tokens: list[int]) -> float:
        return self.decode([tokens], 1)

    def decode(self, prompts: list[list[int]], new_tokens: int) -> float:
        start = time.perf_counter()
        waiting = set(self._manager.add_requests(inputs=prompts, max_new_tokens=new_tokens))
        while waiting:
            result = self._manager.get_result(timeout=1)
            if result is None:
                if not self._manager.is_running():
                    raise RuntimeError("its generation thread has ended")
            elif result.error:
                raise RuntimeError(result.error)
            elif result.is_finished():
                waiting.discard(result.request_id)
                if len(result.generated_tokens) != new_tokens:
                    raise RuntimeError(
                        f"asked for {new_tokens} tokens, got {len(result.generated_tokens)}"
                    )
        return time.perf_counter() - start
