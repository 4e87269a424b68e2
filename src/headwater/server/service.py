"""What all handlers share: the engine, who may ask it, and what is remembered of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from fastapi import Request

from headwater.cache.tokens import count
from headwater.engine.api import Headwater
from headwater.engine.asked import Prompt
from headwater.errors import PromptTooLong
from headwater.server.config import ServerConfig
from headwater.server.conversations import Conversations
from headwater.server.desk import Desk, Seat
from headwater.server.errors import ApiError
from headwater.server.recorder import Recorder
from headwater.server.running import Deadline, Running
from headwater.server.tenants import Tenants

Answer = TypeVar("Answer")

ASKERS = 4
"""Threads that wait for the engine. They are not those in which prompts become tokens: a step that
takes long would stop these, too."""


class Service:
    """One engine behind HTTP. Belongs to the event loop it serves in."""

    def __init__(self, hw: Headwater, config: ServerConfig, recorder: Recorder) -> None:
        self.hw = hw
        self.config = config
        self.tenants = Tenants(config.tenants)
        self.desk = Desk(config.max_waiting)
        self.recorder = recorder
        self.conversations = Conversations()
        self.model = config.served_name or hw.loaded.folder.name
        self.began = int(time.time())
        self.unfinished: set[Running] = set()
        self._askers = ThreadPoolExecutor(ASKERS, "headwater-asks")

    @property
    def has_admin(self) -> bool:
        return any(tenant.admin for tenant in self.tenants.all)

    @property
    def is_ready(self) -> bool:
        """Requests are let in and steps go on."""
        return self.why_not_ready is None

    @property
    def why_not_ready(self) -> str | None:
        """Why requests would not be answered; None when they are."""
        if self.desk.is_closed:
            return "The server is ending."
        if not self.hw.healthy:
            return "The engine has stopped."
        if self.is_stalled:
            return f"A step has been running for more than {self.config.stall:g} s."
        return None

    @property
    def is_stalled(self) -> bool:
        """The present step takes longer than any should."""
        since = self.hw.progress.since
        return since is not None and time.monotonic() - since > self.config.stall

    async def tokens(self, prompt: Prompt, keywords: dict[str, Any]) -> bytes:
        """A prompt as packed token ids, made in a thread of its own. Raises BadRequest."""
        return await asyncio.to_thread(self.hw.tokens, prompt, **keywords)

    async def ask(self, what: Callable[[], Answer]) -> Answer:
        """Ask the engine's thread, which answers between two steps. Raises HeadwaterError."""
        return await asyncio.get_running_loop().run_in_executor(self._askers, what)

    async def begin(
        self, seat: Seat, asked: Sequence[tuple[Prompt, dict[str, Any]]], deadline: float | None
    ) -> Running:
        """Start a request that was let in, one generation a prompt.

        deadline: seconds, at most the server's own. Raises ApiError and HeadwaterError; nothing
        runs then.
        """
        limit = Deadline.of(deadline, self.config.deadline)
        running = Running(seat, self.recorder, limit, self.unfinished.discard)
        self.unfinished.add(running)
        try:
            for prompt, keywords in asked:
                generation = await self.hw.asubmit(prompt, **keywords)
                running.listen(generation, keywords.get("salt", ""))
                require_context(generation.prompt, self.hw.recipe.settings.context)
        except BaseException:
            running.leave()
            raise
        return running

    def fail(self, error: ApiError) -> None:
        """End every unfinished request with an error."""
        for running in list(self.unfinished):
            running.fail(error)

    def close(self) -> None:
        self._askers.shutdown(wait=False)
        self.recorder.close()


def require_context(prompt: bytes, context: int) -> None:
    """The engine would refuse it as well, but without the code that OpenAI's clients know.

    Raises PromptTooLong.
    """
    if count(prompt) > context:
        raise PromptTooLong(
            f"The prompt has {count(prompt)} tokens, but the model's context is {context}; "
            "shorten the prompt."
        )


def service_of(request: Request) -> Service:
    return cast("Service", request.app.state.service)
