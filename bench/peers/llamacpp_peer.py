"""llama.cpp behind the bench's verbs, driven through its own batch interface.

Its 4-bit weights are read from memory in a seventh of the time that float32 ones take, so its rows
say how far apart the two are as people use them; they are not a comparison of caches. Sequences
share one KV buffer (`kv_unified`), and a prefix is given to a sequence with `seq_cp`, which copies
nothing: that is how llama.cpp's own batched benchmark shares a prompt.
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
        file = lib.llama_model_default_params()
        # Its AMX kernels, which repack the weights, die of an illegal instruction on a virtual
        # machine that shows AMX; without them it computes with AVX-512 or AVX2.
        file.use_extra_bufts = False
        self._model = lib.llama_model_load_from_file(os.fsencode(model), file)
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

        # The prompts' common prefix is taken from sequence 0, as far as that has it.
        shared = min(_shared(prompts[0], other) for other in [*prompts[1:], self._known])
        shared = min(shared, *(len(prompt) - 1 for prompt in prompts))
        start = time.perf_counter()
        drawn = []
        for sequence, prompt in enumerate(prompts, 1):
            lib.llama_memory_seq_cp(self._memory, 0, sequence, 0, shared)
            tail = enumerate(prompt[shared:], shared)
            drawn += self._feed([(token, position, sequence) for position, token in tail], 1)
        for step in range(new_tokens - 1):
            tokens = zip(drawn, prompts, strict=True)
            rows = [(token, len(p) + step, s) for s, (token, p) in enumerate(tokens, 1)]
            drawn = self._feed(rows, len(rows))
        seconds = time.perf_counter() - start
        for sequence in range(1, len(prompts) + 1):
            lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return seconds

    def _first_token(self, tokens: list[int]) -> float:
        import llama_cpp as lib

        start = time.perf_counter()
        shared = min(_shared(tokens, self._known), len(tokens) - 1)
        lib.llama_memory_seq_rm(self._memory, 0, shared, -1)
        self._feed(
            [(token, position, 0) for position, token in enumerate(tokens[shared:], shared)], 1
        )
        seconds = time.perf_counter() - start
        self._known = list(tokens)
        return seconds

    def _feed(self, rows: list[tuple[int, int, int]], answers: int) -> list[int]:
        """Compute (token, position, sequence) rows; the likeliest next tokens of the last ones."""
        import llama_cpp as lib
        import numpy as np

        batch, silent = self._batch, len(rows) - answers
        for first in range(0, len(rows), BATCH):
            piece = rows[first : first + BATCH]
            batch.n_tokens = len(piece)
            for i, (token, position, sequence) in enumerate(piece):
                batch.token[i], batch.pos[i] = token, position
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
                batch.logits[i] = first + i >= silent
            if lib.llama_decode(self._context, batch) != 0:
                raise RuntimeError("llama_decode failed")
        out = []
        for i in range(len(piece) - answers, len(piece)):
            logits = lib.llama_get_logits_ith(self._context, i)
            out.append(int(np.ctypeslib.as_array(logits, (self._words,)).argmax()))
        return out


def _shared(a: list[int], b: list[int]) -> int:
    """How many leading tokens two prompts share."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
