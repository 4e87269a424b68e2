"""`/v1/cache/...`: a tenant's own part of the cache: prewarm, pin, flush, explain.

Every call takes a prompt as messages (which the server renders, with tools, as a later request
would), as a text or as token ids, and tells only what is the caller's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headwater.cache.tokens import count, unpack
from headwater.engine.asked import Prompt
from headwater.engine.cache_control import Receipt
from headwater.engine.units import parse_bytes
from headwater.errors import HeadwaterError
from headwater.server.answer import json_response
from headwater.server.caller import Caller, CallerOf, ServiceOf
from headwater.server.errors import ApiError, error_of
from headwater.server.service import Service
from headwater.server.shapes.messages_in import chat_messages

router = APIRouter(prefix="/v1/cache")
Answer = TypeVar("Answer")


class PromptBody(BaseModel):
    """A prompt in one of three forms, and the salt under which it is cached."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    prompt: str | list[int] | None = None
    salt: str = Field("", max_length=256)

    def given(self) -> tuple[Prompt, dict[str, Any]] | None:
        """The prompt and what its template is given; None when there is none."""
        if (self.messages is None) == (self.prompt is None):
            if self.messages is None:
                return None
            raise ApiError(400, "Give either messages or prompt.", param="prompt")
        if self.prompt is not None:
            return self.prompt, {}
        keywords: dict[str, Any] = {}
        if self.tools:
            keywords["tools"] = self.tools
        if self.chat_template_kwargs:
            keywords["template_options"] = self.chat_template_kwargs
        return chat_messages(self.messages or []), keywords

    def required(self) -> tuple[Prompt, dict[str, Any]]:
        """The prompt. Raises ApiError, 400, without one."""
        given = self.given()
        if given is None:
            raise ApiError(400, "Give messages or a prompt.", param="messages")
        return given


class PinBody(PromptBody):
    """A prompt to keep, for so many seconds."""

    ttl: float = Field(300.0, gt=0, le=30 * 24 * 3600, description="Seconds.")
    budget: str | int | None = Field(
        None, description="Bytes that all your pins may take together; never more than your own."
    )


class FlushBody(PromptBody):
    """Which prompts to forget: those that begin with this one; all, when none is given."""

    salt: str | None = Field(None, max_length=256)  # type: ignore[assignment]


@router.post("/prewarm", summary="Compute a prompt's KV before it is needed")
async def prewarm(body: PromptBody, caller: CallerOf, service: ServiceOf) -> Response:
    """Runs behind the tenant's other requests, and draws no answer."""
    prompt = await service.tokens(*body.required())
    end = await _warm(service, caller, prompt, body.salt)
    return json_response(
        {
            "prompt_tokens": count(prompt),
            "cached_tokens": end.usage.cached_tokens,
            "computed_tokens": end.usage.prompt_tokens - end.usage.cached_tokens,
            "seconds": end.timing.total,
        }
    )


@router.post("/pin", summary="Compute a prompt's KV and keep it for a while")
async def pin(body: PinBody, caller: CallerOf, service: ServiceOf) -> Response:
    """The receipt says what is kept: all, a part that fits the budget, or nothing."""
    prompt = await service.tokens(*body.required())
    await _warm(service, caller, prompt, body.salt)
    own = caller.tenant.pin_memory
    budgets = [parse_bytes(each) for each in (own, body.budget) if each is not None]
    receipt = await ask(
        lambda: service.hw.cache.pin(
            prompt, body.ttl, min(budgets, default=None), caller.tenant.sharing, body.salt
        )
    )
    return json_response(_receipt(receipt))


@router.get("/pin", summary="Your pins")
async def pins(caller: CallerOf, service: ServiceOf) -> Response:
    found = await ask(lambda: service.hw.cache.pins(caller.tenant.sharing))
    return json_response({"pins": [_receipt(each) for each in found]})


@router.delete("/pin/{pin}", summary="End a pin")
async def unpin(pin: int, caller: CallerOf, service: ServiceOf) -> Response:
    if not await ask(lambda: service.hw.cache.unpin(pin, caller.tenant.sharing)):
        raise ApiError(404, f"You have no pin {pin}.", param="pin")
    return json_response({"id": pin, "deleted": True})


@router.post("/flush", summary="Forget prompts")
async def flush(body: FlushBody, caller: CallerOf, service: ServiceOf) -> Response:
    """Counts tokens whose KV is gone, and tokens that stay because requests use them now."""
    given = body.given()
    prefix = b"" if given is None else await service.tokens(*given)
    done = await ask(lambda: service.hw.cache.flush(prefix, caller.tenant.sharing, body.salt))
    return json_response(msgspec.to_builtins(done))


@router.post("/explain", summary="What a prompt would reuse, without running it")
async def explain(body: PromptBody, caller: CallerOf, service: ServiceOf) -> Response:
    prompt = await service.tokens(*body.required())
    found = await ask(lambda: service.hw.cache.explain(prompt, caller.tenant.sharing, body.salt))
    return json_response(msgspec.to_builtins(found))


@router.get("/requests", summary="What the cache did for your last requests")
async def last_requests(caller: CallerOf, service: ServiceOf) -> Response:
    found = service.recorder.last_of(caller.tenant.name)
    return json_response({"requests": [msgspec.to_builtins(each) for each in found]})


async def _warm(service: Service, caller: Caller, prompt: bytes, salt: str) -> Any:
    asked = {
        "max_tokens": 1,
        "temperature": 0.0,
        "domain": caller.tenant.sharing,
        "salt": salt,
        "priority": caller.tenant.priority * 1000 - 499,
    }
    running = await service.begin(caller.tenant, [(unpack(prompt), asked)], None)
    [result] = await running.results()
    return result


def _receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.id,
        "prompt_tokens": receipt.prompt_tokens,
        "pinned_tokens": receipt.pinned_tokens,
        "bytes": receipt.bytes,
        "expires_in": receipt.seconds,
    }


async def ask(what: Callable[[], Answer]) -> Answer:
    """Ask the engine's thread, which answers between two steps. Raises ApiError."""
    try:
        return await asyncio.to_thread(what)
    except HeadwaterError as error:
        raise error_of(error) from error
