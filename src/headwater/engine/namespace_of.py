"""From (epoch, domain, salt) to a namespace, for one model under one secret."""

from __future__ import annotations

from headwater.engine.contract_of import Computing, contract_of
from headwater.engine.facts import ModelFacts
from headwater.engine.loaded import LoadedModel
from headwater.errors import ModelRefused
from headwater.identity.contract import KVContract
from headwater.identity.namespace import Namespaces


class NamespaceOf:
    """Binds the contract of a loaded model; a new epoch is a contract with other weights."""

    def __init__(self, loaded: LoadedModel, page: int, secret: bytes) -> None:
        """Raises ModelRefused when folder and loaded model do not agree on the shape of KV."""
        facts = loaded.model.facts
        number = str(facts.dtype).removeprefix("torch.")
        self.contract = contract_of(loaded.folder, Computing.uniform(number, page))
        # Hashing the contract takes longer than hashing domain and salt, and every arrival asks.
        self._digest = self.contract.digest()
        self._namespaces = Namespaces(secret)
        _require_same_shape(self.contract, facts)

    @property
    def epoch(self) -> str:
        """That of the weights the engine began with, or has been told of last."""
        return self.contract.meaning.epoch

    def __call__(self, epoch: str, domain: str, salt: str) -> bytes:
        if epoch != self.epoch:
            self.contract = self.contract.with_weights(epoch)
            self._digest = self.contract.digest()
        return self._namespaces.key(self._digest, domain, salt)


def _require_same_shape(contract: KVContract, facts: ModelFacts) -> None:
    """The contract is read without transformers, which may know a default that we do not."""
    for name in ("layers", "kv_heads", "head_size", "vocabulary"):
        stated, loaded = getattr(contract.meaning, name), getattr(facts, name)
        if stated != loaded:
            raise ModelRefused(
                f"The model's configuration states {name} in a way that is not known here: it is "
                f"read as {stated}, but the loaded model has {loaded}."
            )
