"""From (epoch, domain, salt) to a namespace, for one model under one secret."""

from __future__ import annotations

from headwater.engine.contract_of import Computing, contract_of
from headwater.engine.loaded import LoadedModel
from headwater.identity.contract import KVContract, KVForm
from headwater.identity.namespace import Namespaces


class NamespaceOf:
    """Binds the contract of a loaded model; a new epoch is another contract."""

    def __init__(self, loaded: LoadedModel, page: int, secret: bytes) -> None:
        number = str(loaded.model.facts.dtype).removeprefix("torch.")
        form = KVForm(page_size=page, layout="layer,kv,token,head,dim", codec="none")
        computing = Computing(kv_dtype=number, numerics=number, form=form)
        self._contract: KVContract = contract_of(loaded.folder, computing)
        self._namespaces = Namespaces(secret)

    @property
    def epoch(self) -> str:
        """That of the weights the engine began with, or has been told of last."""
        return self._contract.meaning.epoch

    def __call__(self, epoch: str, domain: str, salt: str) -> bytes:
        if epoch != self.epoch:
            self._contract = self._contract.with_epoch(epoch)
        return self._namespaces.key(self._contract, domain, salt)
