"""A model ready to be served: its folder, its network, its tokenizer, and who serves it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Any

from torch import Tensor

from headwater.engine.load import choose_device, choose_dtype, load_model
from headwater.engine.model import Model
from headwater.engine.reading import refusing
from headwater.engine.sources.resolve import ModelFolder, require_unchanged, resolve
from headwater.engine.tokenizer import Tokenizer
from headwater.errors import HeadwaterError


@dataclass(slots=True)
class LoadedModel:
    """Several engines may serve one; its weights can be replaced while only one does.

    An engine joins before it reads anything here and leaves when it has ended. While weights are
    being replaced none can join, since it would keep KV of the old ones under the name of the old
    ones and go on with it under the new. After a replacement `folder` has the new weights' digest.
    """

    folder: ModelFolder
    model: Model
    tokenizer: Tokenizer
    engines: int = 0
    # Reentrant, since an engine that is collected as garbage leaves at any moment in any thread.
    _lock: Any = field(default_factory=RLock, repr=False, compare=False)
    _replacing: Future[None] | None = field(default=None, repr=False, compare=False)
    _whole: bool = field(default=True, repr=False, compare=False)

    @classmethod
    def load(
        cls, model: str | Path | None = None, dtype: str = "auto", device: str = "auto"
    ) -> LoadedModel:
        """Find, fetch if need be, and load.

        dtype: a name in `load.DTYPES`, or auto. device: cpu, cuda or auto.
        Raises BadSetting, before anything is fetched, ModelNotFound or ModelRefused.
        """
        where = choose_device(device)
        number = choose_dtype(dtype, where)
        folder = resolve(model)
        net = load_model(folder.path, number, where)
        with refusing(f"The tokenizer in {folder.path} cannot be read"):
            tokenizer = Tokenizer(folder.path)
        require_unchanged(folder)
        return cls(folder, net, tokenizer)

    def join(self) -> None:
        """Count one more engine. Raises HeadwaterError while weights are being replaced."""
        with self._lock:
            self._require_settled()
            self.engines += 1

    def leave(self) -> None:
        """Count one engine less."""
        with self._lock:
            self.engines -= 1

    def begin_replacing(self, done: Future[None]) -> None:
        """For the one engine that serves these weights: no other joins until `done` is.

        However the caller ends, `done` tells when the engine has ended with it.
        Raises HeadwaterError when there is another engine.
        """
        with self._lock:
            if self.engines > 1:
                raise HeadwaterError("Another engine serves these weights; close it first.")
            self._require_settled()
            self._replacing = done

    def _require_settled(self) -> None:
        if self._replacing is not None and not self._replacing.done():
            raise HeadwaterError("This model's weights are being replaced; try again after.")
        if not self._whole:
            raise HeadwaterError("Replacing this model's weights failed; load it again.")

    def put_weights(self, fitting: Mapping[str, Tensor], digest: str) -> None:
        """Put weights that fit in place, known by `digest` from then on; no step may be running."""
        self._whole = False
        self.model.put_weights(fitting)
        self.folder = replace(self.folder, weight_digest=digest)
        self._whole = True
