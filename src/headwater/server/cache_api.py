"""`/v1/cache/...`: a tenant's own part of the cache: prewarm, pin, flush, explain.

Every call takes a prompt as messages (which the server renders, with tools, as a later request
would), as a text or as token ids, and tells only what is the caller's own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headwater.cache.tokens import count, unpack
from headwater.engine.asked import Prompt
from headwater.engine.cache_control import Receipt
from headwater.engine.results import Result
from headwater.engine.units import parse_bytes
from headwater.errors import BadSetting
from headwater.server.answer import json_response, results_of
from headwater.server.caller import PRIORITIES, CallerOf, SeatOf, ServiceOf, priority_of
from headwater.server.desk import Seat
from headwater.server.errors import ApiError
from headwater.server.json_route import JsonRoute
from headwater.server.service import Service
from headwater.server.shapes.messages_in import chat_messages

router = APIRouter(prefix="/v1/cache", route_class=JsonRoute)


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

    def bytes_at_most(self, own: str | int | None) -> int | None:
        """The smaller of this budget and the tenant's own. Raises ApiError, 400."""
        try:
            wanted = None if self.budget is None else parse_bytes(self.budget)
        except BadSetting as error:
            raise ApiError(400, f"budget: {error}", param="budget") from error
        if wanted is not None and wanted < 0:
            raise ApiError(400, "budget must be 0 bytes or more.", param="budget")
        budgets = [wanted, None if own is None else parse_bytes(own)]
        return min((each for each in budgets if each is not None), default=None)


class FlushBody(PromptBody):
    """Which prompts to forget: those that begin with this one; all, when none is given."""

    salt: str | None = Field(None, max_length=256)  # type: ignore[assignment]


@router.post("/prewarm", summary="Compute a prompt's KV before it is needed")
async def prewarm(body: PromptBody, request: Request, seat: SeatOf, service: ServiceOf) -> Response:
    """Runs behind the tenant's other requests, and draws no answer."""
    prompt = await _tokens(service, body)
    end = await _warm(request, service, seat, prompt, body.salt)
    return json_response(
        {
            "prompt_tokens": count(prompt),
            "cached_tokens": end.usage.cached_tokens,
            "computed_tokens": end.usage.prompt_tokens - end.usage.cached_tokens,
            "seconds": end.timing.total,
        }
    )


@router.post("/pin", summary="Compute a prompt's KV and keep it for a while")
async def pin(body: PinBody, request: Request, seat: SeatOf, service: ServiceOf) -> Response:
    """The receipt says what is kept: all, a part that fits the budget, or nothing."""
    budget = body.bytes_at_most(seat.tenant.pin_memory)
    prompt = await _tokens(service, body)
    await _warm(request, service, seat, prompt, body.salt)
    receipt = await service.ask(
        lambda: service.hw.cache.pin(prompt, body.ttl, budget, seat.tenant.sharing, body.salt)
    )
    return json_response(_receipt(receipt))


@router.get("/pin", summary="Your pins")
async def pins(seat: SeatOf, service: ServiceOf) -> Response:
    found = await service.ask(lambda: service.hw.cache.pins(seat.tenant.sharing))
    return json_response({"pins": [_receipt(each) for each in found]})


@router.delete("/pin/{pin}", summary="End a pin")
async def unpin(pin: int, seat: SeatOf, service: ServiceOf) -> Response:
    if not await service.ask(lambda: service.hw.cache.unpin(pin, seat.tenant.sharing)):
        raise ApiError(404, f"You have no pin {pin}.", param="pin")
    return json_response({"id": pin, "deleted": True})


@router.post("/flush", summary="Forget prompts")
async def flush(body: FlushBody, seat: SeatOf, service: ServiceOf) -> Response:
    """Counts tokens whose KV is gone, and tokens that stay because requests use them now."""
    given = body.given()
    prefix = b"" if given is None else await service.tokens(*given)
    done = await service.ask(lambda: service.hw.cache.flush(prefix, seat.tenant.sharing, body.salt))
    return json_response(msgspec.to_builtins(done))


@router.post("/explain", summary="What a prompt would reuse, without running it")
async def explain(body: PromptBody, seat: SeatOf, service: ServiceOf) -> Response:
    prompt = await _tokens(service, body)
    found = await service.ask(
        lambda: service.hw.cache.explain(prompt, seat.tenant.sharing, body.salt)
    )
    return json_response(msgspec.to_builtins(found))


@router.get("/requests", summary="What the cache did for your last requests")
async def last_requests(caller: CallerOf, service: ServiceOf) -> Response:
    found = service.recorder.last_of(caller.tenant.name)
    return json_response({"requests": [msgspec.to_builtins(each) for each in found]})


async def _tokens(service: Service, body: PromptBody) -> bytes:
    """Raises ApiError and BadRequest."""
    prompt = await service.tokens(*body.required())
    if not prompt:
        raise ApiError(400, "The prompt is empty; send at least one token.", param="prompt")
    return prompt


async def _warm(request: Request, service: Service, seat: Seat, prompt: bytes, salt: str) -> Result:
    """Raises ApiError, HeadwaterError and ClientGone."""
    asked = {
        "max_tokens": 1,
        "temperature": 0.0,
        "domain": seat.tenant.sharing,
        "salt": salt,
        "priority": priority_of(seat.tenant, 1 - PRIORITIES),
    }
    running = await service.begin(seat, [(unpack(prompt), asked)], None)
    [result] = await results_of(request, running)
    return result


def _receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.id,
        "prompt_tokens": receipt.prompt_tokens,
        "pinned_tokens": receipt.pinned_tokens,
        "bytes": receipt.bytes,
        "expires_in": receipt.seconds,
    }
