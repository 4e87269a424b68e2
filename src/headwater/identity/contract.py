"""The contract: all facts that decide whether KV computed in one place is right in another.

Where a fact stands says what it does:

    meaning   changes the numbers. Hashed into every namespace: KV of another meaning is not found.
    form      changes how the numbers lie in memory. Not hashed: stored KV can be converted.
    text      changes which token ids a text becomes. Counts only where keys are text.

A new fact is a new field, and a field of `KVMeaning` is hashed without further ado: forgetting to
hash one is not a mistake that can be made. No fact has a default, so a contract written by an
older or newer version lacks one or has one too many, and either refuses (`identity.document`).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, Literal

import msgspec

from headwater.errors import ContractError
from headwater.identity.framing import frame

SCHEMA: Final = "headwater.contract/1"

# JSON objects of scalars and lists, such as a model's rope parameters.
Facts = dict[str, Any]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_EPOCH = re.compile(r"[0-9a-f]{32,64}")


class Adapter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of the weights that is applied at run time.

    digest: SHA-256 of the adapter's weights, never its name: a name can be reloaded.
    scale: what the adapter's contribution is multiplied with.
    from_position: the first position it acts on; an activated adapter leaves earlier KV alone.
    """

    digest: str
    scale: float
    from_position: int

    def __post_init__(self) -> None:
        _require_digest("meaning.adapter.digest", self.digest)
        if self.from_position < 0:
            raise ContractError("meaning.adapter.from_position must not be negative.")


class KVMeaning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts that change the numbers of KV.

    weight_digest: SHA-256 of the weights as they lie on disk; of weights that lie on none, a random
        id as long as that.
    epoch: which weights are in memory: a digest of them or a random id, in hexadecimal.
        Never a counter: two runs must not meet at "epoch 1" in a tier that outlives them.
    architecture: the model's class.
    adapter: None for the base model.
    position_encoding: rope parameters, or whatever the architecture uses instead.
    attention: heads, windows, soft caps: what attention does with queries and keys.
    settings: all other entries of the model's configuration that are not known to be harmless,
        so that one which nobody thought of (an epsilon, an activation) still counts.
    layers, kv_heads, head_size, vocabulary: the shape of KV and the range of token ids.
    kv_dtype: the number format KV is kept in.
    media: digest of how pictures and sound become embeddings; None for text alone.
    numerics: how the engine computes (number format, deterministic or not).
    """

    weight_digest: str
    epoch: str
    architecture: str
    adapter: Adapter | None
    position_encoding: Facts
    attention: Facts
    settings: Facts
    layers: int
    kv_heads: int
    head_size: int
    vocabulary: int
    kv_dtype: str
    media: str | None
    numerics: str

    def __post_init__(self) -> None:
        _require_digest("meaning.weight_digest", self.weight_digest)
        if not _EPOCH.fullmatch(self.epoch):
            raise ContractError(
                "meaning.epoch must be 32 to 64 hexadecimal digits: a digest of the weights or a "
                "random id, never a counter."
            )
        if self.media is not None:
            _require_digest("meaning.media", self.media)
        for name in ("layers", "kv_heads", "head_size", "vocabulary"):
            if getattr(self, name) < 1:
                raise ContractError(f"meaning.{name} must be at least 1.")


class KVForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the numbers lie in memory.

    page_size: tokens a page. layout: the order of the axes, slowest first. codec: "none", or the
    name of what they were compressed with.
    """

    page_size: int
    layout: str
    codec: str


class TextFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What turns text into token ids: SHA-256 of the tokenizer's files and of the chat template.

    None where the model has none. Prefixes are keyed by token ids, so these matter only to those
    who key by text: a router in front of engines, a stored transcript.
    """

    tokenizer_digest: str | None
    template_digest: str | None


class KVContract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything two places must agree on before one reuses the other's KV."""

    schema: Literal["headwater.contract/1"] = SCHEMA
    meaning: KVMeaning
    form: KVForm
    text: TextFacts

    def digest(self) -> bytes:
        """SHA-256 of the meaning (32 bytes): what a namespace is built on."""
        return hashlib.sha256(frame([self.schema, msgspec.to_builtins(self.meaning)])).digest()

    def with_weights(self, digest: str) -> KVContract:
        """The same contract for other weights of the same shapes, which are in memory now.

        digest: that of the folder they came from, which makes this the contract of that folder; a
        random id as long, when they came from none. Raises ContractError for anything else.
        """
        meaning = msgspec.structs.replace(self.meaning, weight_digest=digest, epoch=digest)
        return msgspec.structs.replace(self, meaning=meaning)

    def with_adapter(self, adapter: Adapter | None) -> KVContract:
        """The same contract under an adapter, or under none."""
        meaning = msgspec.structs.replace(self.meaning, adapter=adapter)
        return msgspec.structs.replace(self, meaning=meaning)


def _require_digest(field: str, value: str) -> None:
    if not _DIGEST.fullmatch(value):
        raise ContractError(f"{field} must be a SHA-256 digest in 64 hexadecimal digits.")
