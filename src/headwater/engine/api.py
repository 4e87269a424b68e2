"""Headwater as a library: load a model, generate, see what was reused."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Literal, Self, Unpack
from weakref import finalize

from torch import Tensor

from headwater.cache.tokens import pack
from headwater.engine.asked import Asked, Prompt, Wanted, read_prompt, read_wanted
from headwater.engine.engine import CloseMode, Engine, Swap
from headwater.engine.event_log import event_log
from headwater.engine.generation import AsyncGeneration, Generation
from headwater.engine.job import Deliver, Job
from headwater.engine.kv import KVPool
from headwater.engine.loaded import LoadedModel
from headwater.engine.namespace_of import NamespaceOf
from headwater.engine.options import Named, read_options, recipe_of
from headwater.engine.results import Piece, Result
from headwater.engine.runner import StepRunner
from headwater.engine.secret import load_secret
from headwater.engine.sources.digests import weights_digest
from headwater.engine.stats import Stats
from headwater.engine.weights import fitting_weights
from headwater.errors import BadRequest, BadSetting, HeadwaterError
from headwater.schedule.events import Request, WeightsReplaced


class Headwater:
    """An engine with its model: one prefix cache, shared by all who call it.

        with Headwater() as hw:
            print(hw.generate("The capital of France is", max_tokens=8).text)

    Every method may be called from any thread. Leaving a `with` block waits for what still runs,
    or cancels it when the block is left by an exception.
    """

    def __init__(
        self,
        model: str | Path | LoadedModel | None = None,
        *,
        dtype: str = "auto",
        device: str = "auto",
        secret: bytes | Path | None = None,
        log: Path | str | None = None,
        check: bool = False,
        **options: Unpack[Named],
    ) -> None:
        """
        model: a model folder, a GGUF file, None for the default model (fetched once), or one that
            is loaded already: engines may share it.
        dtype, device: "auto" chooses; else as in "float32" and "cpu".
        secret: what namespaces are keyed with: 32 bytes, a file, or None for this user's own.
        log: a file for every event, from which the run can be replayed; prompts stand in it.
        check: count every page again after every event; slow, for tests.
        options: the fields of `Options`, by name.

        Raises ModelNotFound, ModelRefused, BadSetting, and TypeError for an unknown option.
        """
        wanted = read_options(options)
        loaded = _loaded(model, dtype, device)
        key = secret if isinstance(secret, bytes) else load_secret(secret)
        namespace_of = NamespaceOf(loaded, wanted.page, key)
        recipe = recipe_of(wanted, loaded.model.facts, namespace_of.epoch)
        pool = KVPool(loaded.model.facts.kv_format, recipe.pages, recipe.page, loaded.model.device)
        self.loaded = loaded
        self.recipe = recipe
        self._ids = itertools.count(1)
        self._one_change = threading.Lock()
        machine = recipe.build(namespace_of)
        runner = StepRunner(loaded.model, pool)
        self._engine = Engine(machine, runner, event_log(log, recipe), checked=check)
        loaded.engines += 1
        self._closing = finalize(self, _close, self._engine, loaded)

    # Generating

    def generate(self, prompt: Prompt, **asked: Unpack[Asked]) -> Result:
        """Generate and wait. `Wanted` lists the keywords.

        Raises TypeError for an unknown keyword, BadRequest for what can never be served, and
        EngineStopped.
        """
        return self.submit(prompt, **asked).result()

    def stream(self, prompt: Prompt, **asked: Unpack[Asked]) -> Iterator[Piece]:
        """Generate piece by piece; leaving the loop early cancels the request."""
        return iter(self.submit(prompt, **asked))

    def submit(self, prompt: Prompt, **asked: Unpack[Asked]) -> Generation:
        """Begin to generate; the handle waits, iterates or cancels."""
        wanted = read_wanted(asked)
        request = self._request(prompt, wanted)
        generation = Generation(wanted.n, lambda: self._engine.cancel(request.id))
        self._engine.post(self._job(request, wanted, generation.deliver))
        return generation

    async def agenerate(self, prompt: Prompt, **asked: Unpack[Asked]) -> Result:
        """`generate` for coroutines; cancelling the task cancels the request."""
        return await self.asubmit(prompt, **asked).result()

    async def astream(self, prompt: Prompt, **asked: Unpack[Asked]) -> AsyncIterator[Piece]:
        """`stream` for coroutines; closing the generator cancels the request."""
        generation = self.asubmit(prompt, **asked)
        try:
            async for piece in generation:
                yield piece
        finally:
            generation.cancel()

    def asubmit(self, prompt: Prompt, **asked: Unpack[Asked]) -> AsyncGeneration:
        """`submit` for coroutines. Call it where an event loop runs."""
        wanted = read_wanted(asked)
        request = self._request(prompt, wanted)
        generation = AsyncGeneration(wanted.n, lambda: self._engine.cancel(request.id))
        self._engine.post(self._job(request, wanted, generation.deliver))
        return generation

    # Operating

    @property
    def healthy(self) -> bool:
        """Requests are being answered."""
        return self._engine.healthy

    def stats(self) -> Stats:
        """What the engine is doing now. Raises EngineStopped."""
        return self._engine.stats()

    def replace_weights(
        self,
        source: Path | str | Mapping[str, Tensor],
        mode: Literal["restart", "drain"] = "restart",
    ) -> str:
        """Put other weights of the same model in place; returns their epoch when it is done.

        source: a model folder, or a state dict, which must not change meanwhile. mode: "restart"
        computes running requests again under the new weights, "drain" lets them finish first. KV
        of the old weights is unreachable from then on.
        Raises ModelRefused, with nothing changed, when the weights do not fit.
        """
        if isinstance(source, str):
            source = Path(source)
        epoch = _epoch_of(source)
        with self._one_change:
            if self.loaded.engines > 1:
                raise HeadwaterError("Another engine serves these weights; close it first.")
            model = self.loaded.model
            tensors = fitting_weights(model.net, source)
            done: Future[None] = Future()
            event = WeightsReplaced(epoch, mode)
            self._engine.post(Swap(event, lambda: model.replace_weights(tensors), done))
            done.result()
        return epoch

    def close(self, mode: CloseMode = "drain") -> None:
        """End the engine: finish what runs, or cancel it. Later calls do nothing."""
        self._engine.close(mode)
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("drain" if kind is None else "cancel")

    # Inside

    def _request(self, prompt: Prompt, wanted: Wanted) -> Request:
        facts, settings = self.loaded.model.facts, self.recipe.settings
        if wanted.n > settings.running:  # the machine would say so, but after making room for each
            raise BadRequest(f"n is {wanted.n}, but at most {settings.running} can run at once.")
        tokens = read_prompt(prompt, self.loaded.tokenizer, facts)
        eos = () if wanted.ignore_eos else facts.eos
        return Request(
            id=next(self._ids),
            prompt=pack(tokens),
            max_tokens=min(wanted.max_tokens, settings.context),
            domain=wanted.domain,
            salt=wanted.salt,
            choices=wanted.n,
            stop_tokens=tuple({*eos, *wanted.stop_token_ids}),
            priority=wanted.priority,
        )

    def _job(self, request: Request, wanted: Wanted, deliver: Deliver) -> Job:
        tokenizer = self.loaded.tokenizer
        return Job(request, wanted.sampling(), wanted.stop_strings(), tokenizer, deliver)


def _loaded(model: str | Path | LoadedModel | None, dtype: str, device: str) -> LoadedModel:
    if not isinstance(model, LoadedModel):
        return LoadedModel.load(model, dtype, device)
    if (dtype, device) != ("auto", "auto"):
        raise BadSetting("A model that is loaded already keeps its number format and its device.")
    return model


def _close(engine: Engine, loaded: LoadedModel) -> None:
    """What is left to do for an engine that nobody refers to any more."""
    engine.close("cancel")
    loaded.engines -= 1


def _epoch_of(source: Path | Mapping[str, Tensor]) -> str:
    """A digest of a folder's weights, so that a restart meets their KV; else a random id."""
    if isinstance(source, Path):
        return weights_digest(sorted(source.glob("*.safetensors")))
    return secrets.token_hex(16)
