"""llama.cpp behind the bench's verbs, driven through its own batch interface.

Its 4-bit weights are read from memory in a seventh of the time that float32 ones take, so its rows say how
far apart the two are as people use them; they are not a comparison of caches. Sequences share one KV
buffer (`kv_unified`), and a prefix is given to a sequence with `seq_cp`, which copies nothing: that is how
llama.cpp's own batched benchmark shares a prompt.
"""

from __future__ import annotations

import os
import time
from typing import Any

SEQUENCES = 40
BATCH = 2048


class Peer:
    """Sequence 0 keeps the last prompt; others are made from it and dropped again."""

    def __init__(self) -> None:
        self._context: Any = None
        self._model: Any = None
        self._memory: Any = None
        self._batch: Any = None
        self._words = 0
        self._known: list[int] = []

    def load(self, model: str, dtype: str, threads: int, kv_gib: float) -> dict[str, Any]:
        import llama_cpp as lib

        lib.llama_backend_init()
        self._model = lib.llama_model_load_from_file(
            os.fsencode(model), lib.llama_model_default_params()
        )
        if not self._model:
            raise RuntimeError("it cannot read the model file")
        how = lib.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch = 16_384, BATCH, 512
        how.n_seq_max, how.kv_unified = SEQUENCES, True
        how.n_threads = how.n_threads_batch = threads
        self._context = lib.llama_init_from_model(self._model, how)
        if not self._context:
            raise RuntimeError("it cannot make a context")
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(BATCH, 0, 1)
        self._words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        return {"name": "llama.cpp", "version": f"llama-cpp-python {lib.__version__}"}

    def cold(self, tokens: list[int]) -> float:
        return self._first_token(tokens)

    def hit(self, tokens: list[int]) -> float:
        return self._first_token(tokens)

    def decode(self, prompts: list[list[int]], new_tokens: int) -> float:
        import llama_cpp as lib

        shared = (
            min(_shared(prompts[0], prompt) for prompt in prompts)
            if len(prompts) > 1
            else len(prompts[0]) - 1
        )
        shared = min(shared, _shared(prompts[0], self._known), len(prompts[0]) - 1)
        lib.llama_memory_seq_rm(self._memory, 0, shared, -1)
        self._known = self._known[:shared]
        start = time.perf_counter()
        drawn = []
        for sequence, prompt in enumerate(prompts, 1):
            lib.llama_memory_seq_cp(self._memory, 0, sequence, 0, shared)
            drawn.append(
                self._feed(
                    [(token, shared + i, sequence) for i, token in enumerate(prompt[shared:])]
                )[-1]
            )
        for i in range(new_tokens - 1):
            rows = [
                (t, len(p) + i, s) for s, (t, p) in enumerate(zip(drawn, prompts, strict=True), 1)
            ]
            drawn = self._feed(rows, last_only=False)
        seconds = time.perf_counter() - start
        for sequence in range(1, len(prompts) + 1):
            lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return seconds

    def _first_token(self, tokens: list[int]) -> float:
        import llama_cpp as lib

        start = time.perf_counter()
        shared = min(_shared(tokens, self._known), len(tokens) - 1)
        lib.llama_memory_seq_rm(self._memory, 0, shared, -1)
        self._feed([(token, shared + i, 0) for i, token in enumerate(tokens[shared:])])
        seconds = time.perf_counter() - start
        self._known = list(tokens)
        return seconds

    def _feed(self, rows: list[tuple[int, int, int]], last_only: bool = True) -> list[int]:
        """Compute (token, position, sequence) rows; the likeliest next token of the last one, or of each."""
        import llama_cpp as lib
        import numpy as np

        for first in range(0, len(rows), BATCH):
            piece, batch = rows[first : first + BATCH], self._batch
            batch.n_tokens = len(piece)
            for i, (token, position, sequence) in enumerate(piece):
                batch.token[i], batch.pos[i] = token, position
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
                batch.logits[i] = not last_only or first + i == len(rows) - 1
            if lib.llama_decode(self._context, batch) != 0:
                raise RuntimeError("llama_decode failed")
        wanted = [len(piece) - 1] if last_only else range(len(piece))
        logits = [
            np.ctypeslib.as_array(lib.llama_get_logits_ith(self._context, i), (self._words,))
            for i in wanted
        ]
        return [int(row.argmax()) for row in logits]


def _shared(a: list[int], b: list[int]) -> int:
    """How many leading tokens two prompts share."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
