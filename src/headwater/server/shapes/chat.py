"""`/v1/chat/completions`: OpenAI's chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from headwater.engine.results import Choice, End, Piece, Result
from headwater.server.answer import answer
from headwater.server.caller import CallerOf, SeatOf, ServiceOf
from headwater.server.errors import ApiError
from headwater.server.json_route import JsonRoute
from headwater.server.shapes.common import (
    BytesOf,
    OpenAIBody,
    chat_logprob,
    new_id,
    now,
    report_of,
    usage_of,
)
from headwater.server.shapes.fields import require_model, require_supported
from headwater.server.shapes.messages_in import chat_messages
from headwater.server.sse import DONE, event

router = APIRouter(route_class=JsonRoute)


class ChatBody(OpenAIBody):
    """A request to `/v1/chat/completions`."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Variables of the model's template, such as enable_thinking."
    )

    def asked(self, context: int) -> dict[str, Any]:
        """The engine's keywords."""
        if self.max_tokens == 0:
            raise ApiError(400, "max_tokens must be 1 or more.", param="max_tokens")
        most = self.max_completion_tokens or self.max_tokens
        named = self.keywords() | {"max_tokens": context if most is None else most}
        if self.logprobs:
            named["logprobs"] = self.top_logprobs or 0
        elif self.top_logprobs:
            raise ApiError(400, "top_logprobs needs logprobs to be true.", param="top_logprobs")
        if self.tools and (self.model_extra or {}).get("tool_choice") != "none":
            named["tools"] = self.tools
        if self.chat_template_kwargs:
            named["template_options"] = self.chat_template_kwargs
        return named


@router.post("/v1/chat/completions", summary="Answer a conversation")
async def chat(
    body: ChatBody, request: Request, caller: CallerOf, seat: SeatOf, service: ServiceOf
) -> Response:
    require_supported(body)
    require_model(body.model, service.model)
    controls = body.controls()
    asked = body.asked(service.hw.recipe.settings.context) | caller.asked(controls)
    prompt = chat_messages(body.messages)
    running = await service.begin(seat, [(prompt, asked)], controls.deadline)
    told = caller.is_told(controls, always=service.config.report)
    shape = ChatShape(service.model, body, service.hw.loaded.tokenizer.bytes_of, told)
    return await answer(request, running, shape, stream=body.stream)


class ChatShape:
    """Writes the answer to one chat."""

    def __init__(self, model: str, body: ChatBody, bytes_of: BytesOf, told: bool) -> None:  # noqa: FBT001 - data
        self._head = {"id": new_id("chatcmpl"), "created": now(), "model": model}
        self._body = body
        self._bytes_of = bytes_of
        self._told = told
        self._end: End | None = None

    def whole(self, results: Sequence[Result]) -> dict[str, Any]:
        [result] = results
        out: dict[str, Any] = self._head | {
            "object": "chat.completion",
            "choices": [self._choice(choice) for choice in result.choices],
            "usage": usage_of([result.usage]),
        }
        return out | ({"headwater": report_of([result])} if self._told else {})

    def _choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice.tokens, choice.logprobs),
            "finish_reason": choice.finish_reason,
        }

    def _logprobs(self, tokens: Sequence[int], found: Sequence[Any]) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        entries = zip(tokens, found, strict=True)
        return {"content": [chat_logprob(self._bytes_of, t, f) for t, f in entries]}

    def opening(self) -> Iterable[bytes]:
        for index in range(self._body.answers):
            yield self._chunk(index, {"role": "assistant", "content": ""}, None)

    def events(self, prompt: int, piece: Piece) -> Iterable[bytes]:
        if piece.text or piece.logprobs:
            logprobs = self._logprobs(piece.tokens, piece.logprobs)
            yield self._chunk(piece.choice, {"content": piece.text}, None, logprobs)
        if piece.finish_reason is not None:
            yield self._chunk(piece.choice, {}, piece.finish_reason)
        if piece.end is not None:
            self._end = piece.end

    def closing(self) -> Iterable[bytes]:
        if self._end is not None and (self._body.wants_usage or self._told):
            last = self._head | {"object": "chat.completion.chunk", "choices": []}
            if self._body.wants_usage:
                last["usage"] = usage_of([self._end.usage])
            if self._told:
                last["headwater"] = report_of([self._end])
            yield event(last)
        yield DONE

    def _chunk(
        self, index: int, delta: dict[str, Any], reason: str | None, logprobs: Any = None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return event(self._head | {"object": "chat.completion.chunk", "choices": [choice]})
