"""Headwater as a library: load a model, generate, see what was reused."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Self, Unpack, get_args
from weakref import WeakKeyDictionary, finalize

from torch import Tensor

from headwater.cache.tokens import pack
from headwater.engine.asked import Asked, Prompt, Wanted, read_prompt, read_wanted
from headwater.engine.cache_control import CacheControl
from headwater.engine.engine import CloseMode, Engine, Progress, Swap
from headwater.engine.event_log import event_log, log_path
from headwater.engine.generation import AsyncGeneration, Generation
from headwater.engine.job import Deliver, Job
from headwater.engine.kv import KVPool
from headwater.engine.load import choose_device
from headwater.engine.loaded import LoadedModel
from headwater.engine.mailbox import Mailbox
from headwater.engine.memory import require_memory
from headwater.engine.namespace_of import NamespaceOf
from headwater.engine.options import Named, Options, bytes_of, read_options, recipe_of
from headwater.engine.results import Piece, Result
from headwater.engine.runner import StepRunner
from headwater.engine.secret import secret_of
from headwater.engine.sources.resolve import ModelFolder, require_unchanged, resolve
from headwater.engine.stats import Stats
from headwater.errors import BadRequest, BadSetting, EngineStopped, ModelNotFound
from headwater.identity.names import chunk_names
from headwater.identity.namespace import Namespaces
from headwater.schedule.events import Request, WeightsReplaced

SwapMode = Literal["restart", "drain"]


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
        secret: bytes | Path | str | None = None,
        log: Path | str | None = None,
        check: bool = False,
        **options: Unpack[Named],
    ) -> None:
        """
        model: a model folder, a GGUF file, None for the default model (fetched once), or one that
            is loaded already: engines may share it.
        dtype, device: "auto" chooses; else as in "float32" and "cpu".
        secret: what namespaces are keyed with: 32 bytes, a file of them in hexadecimal, or None for
            this user's own.
        log: a file for every event, from which the run can be replayed; prompts stand in it.
        check: count every page again after every event; slow, for tests.
        options: the fields of `Options`, by name.

        Raises BadSetting, as far as possible before the model is loaded, ModelNotFound,
        ModelRefused, and TypeError for an unknown option.
        """
        wanted = read_options(options)
        key = secret_of(secret)
        log = log_path(log)
        loaded = _loaded(model, dtype, device, bytes_of(wanted))
        loaded.join()
        try:
            self._start(loaded, wanted, key, log, check=check)
        except BaseException:
            loaded.leave()
            raise

    def _start(
        self, loaded: LoadedModel, wanted: Options, key: bytes, log: Path | None, *, check: bool
    ) -> None:
        """Begin to serve a model that this engine has joined."""
        namespace_of = NamespaceOf(loaded, wanted.page, key)
        recipe = recipe_of(wanted, loaded.model.facts, namespace_of.epoch)
        form = loaded.model.facts.kv_format
        require_memory(recipe.pages * recipe.page * form.token_bytes, loaded.model.device)
        pool = KVPool(form, recipe.pages, recipe.page, loaded.model.device)
        self.loaded = loaded
        self.recipe = recipe
        self._ids = itertools.count(1)
        self._one_change = threading.Lock()
        self._log_names = Namespaces(key)
        self._mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox]
        self._mailboxes = WeakKeyDictionary()
        machine = recipe.build(namespace_of)
        runner = StepRunner(loaded.model, pool)
        self._engine = Engine(machine, runner, event_log(log, recipe), checked=check)
        self.cache = CacheControl(self._engine, loaded.tokenizer, recipe.page * form.token_bytes)
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
        order = self._order(prompt, asked, time.monotonic())
        generation = Generation(order.request.prompt, order.wanted.n, self._canceller(order))
        self._engine.post(self._job(order, generation.deliver))
        return generation

    async def agenerate(self, prompt: Prompt, **asked: Unpack[Asked]) -> Result:
        """`generate` for coroutines; cancelling the task cancels the request."""
        generation = await self.asubmit(prompt, **asked)
        return await generation.result()

    async def astream(self, prompt: Prompt, **asked: Unpack[Asked]) -> AsyncIterator[Piece]:
        """`stream` for coroutines; closing the generator cancels the request."""
        generation = await self.asubmit(prompt, **asked)
        try:
            async for piece in generation:
                yield piece
        finally:
            generation.cancel()

    async def asubmit(self, prompt: Prompt, **asked: Unpack[Asked]) -> AsyncGeneration:
        """`submit` for coroutines.

        In a thread of its own, since a long text takes longer to become tokens than an event loop
        may be kept from its other work.
        """
        order = await asyncio.to_thread(self._order, prompt, asked, time.monotonic())
        loop = asyncio.get_running_loop()
        mailbox = self._mailboxes.get(loop) or self._mailboxes.setdefault(loop, Mailbox(loop))
        generation = AsyncGeneration(
            order.request.prompt, order.wanted.n, self._canceller(order), mailbox
        )
        self._engine.post(self._job(order, generation.deliver))
        return generation

    # Operating

    @property
    def healthy(self) -> bool:
        """Requests are being answered."""
        return self._engine.healthy

    @property
    def page_bytes(self) -> int:
        """Bytes of KV of a page, all layers."""
        return self.recipe.page * self.loaded.model.facts.kv_format.token_bytes

    @property
    def progress(self) -> Progress:
        """How many steps were computed, and since when the present one runs."""
        return self._engine.progress

    def tokens(self, prompt: Prompt, **asked: Unpack[Asked]) -> bytes:
        """The token ids of a prompt, packed, as `cache` takes them. Raises BadRequest."""
        wanted = read_wanted(asked)
        return self._request(prompt, wanted).prompt

    def chunk_names(self, prompt: bytes, domain: str, salt: str, width: int) -> list[str]:
        """Keyed names of a prompt's whole chunks of `width` tokens, for logs: equal names are equal
        prefixes of one domain, and nothing else can be learnt from them. Not those of any tier."""
        namespace = self._log_names.key(b"request log", domain, salt)
        return [name.hex()[:32] for name in chunk_names(namespace, prompt, width)]

    def stats(self) -> Stats:
        """What the engine is doing now. Raises EngineStopped."""
        return self._engine.stats()

    def replace_weights(
        self,
        source: Path | str | Mapping[str, Tensor],
        mode: SwapMode = "restart",
    ) -> str:
        """Put other weights of the same model in place; returns their epoch when it is done.

        source: a model as `Headwater` takes it, or a state dict, which must not change meanwhile.
        mode: "restart" computes running requests again under the new weights, "drain" lets them
        finish first. KV of the old weights is unreachable from then on.
        Raises ModelNotFound or ModelRefused, with nothing changed, when the weights do not fit, and
        BadSetting for another mode.
        """
        if mode not in get_args(SwapMode):
            raise BadSetting(f"mode is {mode!r}, but must be restart or drain.")
        epoch, found = _named(source)
        done: Future[None] = Future()
        with self._one_change:
            self.loaded.begin_replacing(done)
            try:
                fitting = self._fitting(found)
            except BaseException:
                done.cancel()
                raise
            put = partial(self.loaded.put_weights, fitting, epoch)
            try:
                self._engine.post(Swap(WeightsReplaced(epoch, mode), put, done))
            except EngineStopped:
                done.cancel()
                raise
            done.result()
        return epoch

    def close(self, mode: CloseMode = "drain") -> None:
        """End the engine: finish what runs, or cancel it. Later calls do nothing.

        Raises BadSetting for another mode.
        """
        if mode not in get_args(CloseMode):
            raise BadSetting(f"mode is {mode!r}, but must be drain or cancel.")
        self._engine.close(mode)
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("drain" if kind is None else "cancel")

    # Inside

    def _order(self, prompt: Prompt, asked: Asked, submitted: float) -> _Order:
        """Check what is asked and turn the prompt into tokens."""
        wanted = read_wanted(asked)
        return _Order(wanted, self._request(prompt, wanted), submitted)

    def _canceller(self, order: _Order) -> Callable[[], None]:
        engine, request = self._engine, order.request.id
        return lambda: engine.cancel(request)

    def _request(self, prompt: Prompt, wanted: Wanted) -> Request:
        facts, settings = self.loaded.model.facts, self.recipe.settings
        if wanted.n > settings.running:  # the machine would say so, but after making room for each
            raise BadRequest(f"n is {wanted.n}, but at most {settings.running} can run at once.")
        tokens = read_prompt(
            prompt, wanted, self.loaded.tokenizer, facts.vocabulary, settings.context
        )
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
            reads=wanted.reads and not wanted.prompt_logprobs,
            stores=wanted.stores,
            scores=wanted.prompt_logprobs,
        )

    def _fitting(self, found: ModelFolder | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """New weights in memory, checked, and those that the folder's digest names."""
        if not isinstance(found, ModelFolder):
            return self.loaded.model.fitting_weights(found)
        fitting = self.loaded.model.fitting_weights(found.path)
        require_unchanged(found)
        return fitting

    def _job(self, order: _Order, deliver: Deliver) -> Job:
        return Job(
            order.request,
            order.wanted.sampling(),
            order.wanted.stop_strings(),
            self.loaded.tokenizer,
            deliver,
            submitted=order.submitted,
        )


class _Order(NamedTuple):
    """A request that was checked, what its caller wants of it, and when they came."""

    wanted: Wanted
    request: Request
    submitted: float


def _loaded(
    model: str | Path | LoadedModel | None, dtype: str, device: str, room: int | None
) -> LoadedModel:
    """The model, loaded unless it is already; `room` bytes of KV must be possible beside it."""
    if not isinstance(model, LoadedModel):
        require_memory(room or 0, choose_device(device))
        return LoadedModel.load(model, dtype, device)
    if (dtype, device) != ("auto", "auto"):
        raise BadSetting("A model that is loaded already keeps its number format and its device.")
    return model


def _close(engine: Engine, loaded: LoadedModel) -> None:
    """What is left to do for an engine that nobody refers to any more."""
    engine.close("cancel")
    loaded.leave()


def _named(
    source: Path | str | Mapping[str, Tensor],
) -> tuple[str, ModelFolder | Mapping[str, Tensor]]:
    """What to call new weights, and where they are.

    A folder's go by their digest, as if the engine had begun with them, so that both meet the same
    KV. What lies in a state dict nobody can look up again: it gets a random name.
    """
    if isinstance(source, Path | str):
        folder = resolve(source)
        return folder.weight_digest, folder
    if not isinstance(source, Mapping):
        raise ModelNotFound(
            f"Weights are a folder, a GGUF file or a state dict, not {source!r:.80}."
        )
    return secrets.token_hex(32), source
