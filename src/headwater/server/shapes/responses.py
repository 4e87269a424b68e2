"""`/v1/responses`: OpenAI's stateful form, for text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from headwater.cache.tokens import pack, unpack
from headwater.engine.results import End, Piece, Result, Usage
from headwater.server.answer import answer, json_response
from headwater.server.caller import CallerOf, SeatOf, ServiceOf
from headwater.server.conversations import Rendered, Turn, render
from headwater.server.errors import ApiError
from headwater.server.json_route import JsonRoute
from headwater.server.service import Service
from headwater.server.shapes.common import Body, new_id, now, report_of
from headwater.server.shapes.fields import require_model, require_supported
from headwater.server.shapes.messages_in import chat_messages, text_of
from headwater.server.sse import event

router = APIRouter(route_class=JsonRoute)


class ResponseBody(Body):
    """A request to `/v1/responses`."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    tools: list[dict[str, Any]] | None = None
    store: bool | None = Field(None, description="false: the response cannot be continued.")
    metadata: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def new_messages(self) -> list[dict[str, Any]]:
        """The messages that come with this request."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        if not self.input:
            raise ApiError(400, "input is empty; send at least one message.", param="input")
        return chat_messages([_item(item, f"input[{at}]") for at, item in enumerate(self.input)])


def _item(item: dict[str, Any], where: str) -> dict[str, Any]:
    if item.get("type", "message") != "message":
        raise ApiError(400, f"{where} is {item['type']!r:.40}; only messages are served.")
    return {"role": item.get("role"), "content": text_of(item.get("content"), f"{where}.content")}


@router.post("/v1/responses", summary="Answer, and go on from an earlier response")
async def responses(
    body: ResponseBody, request: Request, caller: CallerOf, seat: SeatOf, service: ServiceOf
) -> Response:
    require_supported(body)
    require_model(body.model, service.model)
    turn = _previous(service, caller.tenant.name, body.previous_response_id)
    messages = _conversation(turn, body)
    rendered = await _rendered(service, body, messages, turn)
    controls = body.controls()
    context = service.hw.recipe.settings.context
    most = context if body.max_output_tokens is None else body.max_output_tokens
    asked = body.sampling() | caller.asked(controls) | {"max_tokens": most}
    running = await service.begin(seat, [(unpack(rendered.tokens), asked)], controls.deadline)
    told = caller.is_told(controls, always=service.config.report)
    shape = ResponseShape(service, caller.tenant.name, body, messages, rendered, told)
    return await answer(request, running, shape, stream=body.stream)


@router.get("/v1/responses/{name}", summary="A response that was kept")
async def get_response(name: str, caller: CallerOf, service: ServiceOf) -> Response:
    turn = _previous(service, caller.tenant.name, name)
    assert turn is not None
    return Response(turn.body, media_type="application/json")


@router.delete("/v1/responses/{name}", summary="Forget a response")
async def delete_response(name: str, caller: CallerOf, service: ServiceOf) -> Response:
    if not service.conversations.drop(caller.tenant.name, name):
        raise _unknown(name)
    return json_response({"id": name, "object": "response", "deleted": True})


def _previous(service: Service, tenant: str, name: str | None) -> Turn | None:
    if name is None:
        return None
    turn = service.conversations.find(tenant, name)
    if turn is None:
        raise _unknown(name)
    return turn


def _unknown(name: str) -> ApiError:
    return ApiError(
        404,
        f"There is no response {name!r:.80}; it was never kept, or is too long ago.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def _conversation(turn: Turn | None, body: ResponseBody) -> list[dict[str, Any]]:
    """Earlier messages and new ones. Instructions hold for one response, as in OpenAI's API; those
    of the turn before stay while none are given, so that its tokens fit."""
    earlier = [] if turn is None else list(turn.messages)
    if body.instructions is not None:
        earlier = [{"role": "system", "content": body.instructions}] + [
            message for message in earlier if message["role"] != "system"
        ]
    return earlier + body.new_messages()


async def _rendered(
    service: Service, body: ResponseBody, messages: list[dict[str, Any]], turn: Turn | None
) -> Rendered:
    return await asyncio.to_thread(
        render,
        service.hw.loaded.tokenizer,
        messages,
        body.tools or [],
        body.chat_template_kwargs or {},
        service.hw.recipe.settings.context,
        turn,
    )


class ResponseShape:
    """Writes one response, and keeps it when it is complete."""

    def __init__(
        self,
        service: Service,
        tenant: str,
        body: ResponseBody,
        messages: list[dict[str, Any]],
        rendered: Rendered,
        told: bool,  # noqa: FBT001 - data
    ) -> None:
        self._service = service
        self._tenant = tenant
        self._body = body
        self._messages = messages
        self._rendered = rendered
        self._told = told
        self._name = new_id("resp")
        self._message = new_id("msg")
        self._created = now()
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._reason = "stop"
        self._end: End | None = None
        self._sequence = 0

    # Whole

    def whole(self, results: Sequence[Result]) -> dict[str, Any]:
        [result] = results
        [choice] = result.choices
        done = self._response(choice.text, choice.finish_reason or "stop", result.usage)
        self._keep(choice.text, choice.tokens, done)
        return done | ({"headwater": report_of([result])} if self._told else {})

    def _response(self, text: str, reason: str, usage: Usage) -> dict[str, Any]:
        cut = reason == "length"
        return self._frame("incomplete" if cut else "completed") | {
            "output": [self._item("completed", text)],
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
        }

    def _frame(self, status: str) -> dict[str, Any]:
        body = self._body
        return {
            "id": self._name,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._service.model,
            "output": [],
            "parallel_tool_calls": False,
            "previous_response_id": body.previous_response_id,
            "temperature": body.temperature if body.temperature is not None else 1.0,
            "tool_choice": "auto",
            "tools": body.tools or [],
            "top_p": body.top_p if body.top_p is not None else 1.0,
            "usage": None,
        }

    def _item(self, status: str, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {
            "id": self._message,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _keep(self, text: str, tokens: Sequence[int], done: dict[str, Any]) -> None:
        if self._body.store is False:
            return
        turn = Turn(
            messages=[*self._messages, {"role": "assistant", "content": text}],
            rendered=self._rendered.text,
            prompt=self._rendered.tokens,
            answer=pack(tokens),
            text=text,
            body=msgspec.json.encode(done),
        )
        self._service.conversations.keep(self._tenant, self._name, turn)

    # In pieces

    def opening(self) -> Iterable[bytes]:
        yield self._event("response.created", response=self._frame("in_progress"))
        yield self._event("response.in_progress", response=self._frame("in_progress"))
        yield self._event(
            "response.output_item.added", output_index=0, item=self._item("in_progress", None)
        )
        yield self._event("response.content_part.added", **self._at(), part=_part(""))

    def events(self, prompt: int, piece: Piece) -> Iterable[bytes]:
        self._tokens += piece.tokens
        if piece.text:
            self._text.append(piece.text)
            yield self._event("response.output_text.delta", **self._at(), delta=piece.text)
        self._reason = piece.finish_reason or self._reason
        self._end = piece.end

    def closing(self) -> Iterable[bytes]:
        assert self._end is not None
        text = "".join(self._text)
        done = self._response(text, self._reason, self._end.usage)
        self._keep(text, self._tokens, done)
        if self._told:
            done = done | {"headwater": report_of([self._end])}
        yield self._event("response.output_text.done", **self._at(), text=text)
        yield self._event("response.content_part.done", **self._at(), part=_part(text))
        yield self._event(
            "response.output_item.done", output_index=0, item=self._item("completed", text)
        )
        yield self._event(f"response.{done['status']}", response=done)

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._message, "output_index": 0, "content_index": 0}

    def _event(self, name: str, **data: Any) -> bytes:
        self._sequence += 1
        return event({"type": name, "sequence_number": self._sequence - 1} | data, name)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
