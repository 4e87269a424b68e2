"""Words in which the tests of the cache tell their stories."""

from __future__ import annotations

from headwater.cache.policies import LRU
from headwater.cache.tokens import pack
from headwater.testing.rig import Rig, Sequence

HOME = b"home"
PAGE = 4


def a_rig(pages: int = 64, page: int = PAGE, ghost_tokens: int | None = None) -> Rig:
    return Rig.of(LRU(), pages=pages, page=page, ghost_tokens=ghost_tokens)


def arrive(rig: Rig, tokens, namespace: bytes = HOME) -> Sequence:
    """A request comes and names what it will compute."""
    sequence = rig.begin(namespace, pack(tokens))
    rig.promise(sequence)
    rig.check()
    return sequence


def compute(rig: Rig, sequence: Sequence, to: int | None = None) -> None:
    """It is computed and committed up to a position, or to its end."""
    assert rig.run(sequence, len(sequence.key) // 4 if to is None else to)
    rig.check()


def leave(rig: Rig, sequence: Sequence) -> None:
    rig.release(sequence)
    rig.check()


def serve(rig: Rig, tokens, namespace: bytes = HOME) -> int:
    """A request comes, is computed and leaves; how many of its tokens were cached."""
    sequence = arrive(rig, tokens, namespace)
    cached = sequence.computed
    compute(rig, sequence)
    leave(rig, sequence)
    rig.verify_all()
    return cached


def ready(rig: Rig, tokens, namespace: bytes = HOME) -> int:
    return rig.look(namespace, pack(tokens)).ready
