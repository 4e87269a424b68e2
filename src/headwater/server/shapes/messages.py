"""`/v1/messages`: Anthropic's shape, with its breakpoints and its account of the cache.

Here KV is kept without being asked to, so breakpoints (`cache_control`) change nothing in what is
reused; they say up to where a prompt counts as written to the cache:

    prompt   |  cache_read  |  cache_creation  |  input  |
             0           cached            breakpoint    end
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headwater.cache.tokens import common_prefix, count, unpack
from headwater.engine.results import End, Piece, Result, Usage
from headwater.errors import BadRequest
from headwater.server.answer import answer, json_response
from headwater.server.caller import CallerOf, SeatOf, ServiceOf
from headwater.server.errors import ApiError
from headwater.server.json_route import JsonRoute
from headwater.server.service import Service
from headwater.server.shapes.common import Body, BytesOf, new_id, report_of
from headwater.server.shapes.fields import require_model, require_supported
from headwater.server.shapes.messages_in import tool_call
from headwater.server.sse import event

router = APIRouter(route_class=JsonRoute)
Blocks = str | list[dict[str, Any]]


class PromptBody(Body):
    """What makes up a prompt, here and in `/v1/messages/count_tokens`."""

    messages: list[dict[str, Any]]
    system: Blocks | None = None
    tools: list[dict[str, Any]] | None = None
    cache_control: dict[str, Any] | None = Field(
        None, description="A breakpoint at the end of the prompt."
    )

    def conversation(self) -> list[dict[str, Any]]:
        """The messages as templates take them. Raises ApiError, 400."""
        out = []
        if self.system:
            out.append({"role": "system", "content": _text(self.system, "system")})
        for at, message in enumerate(self.messages):
            out += _messages(message, f"messages[{at}]")
        if not self.messages:
            raise ApiError(400, "messages is empty; send at least one.", param="messages")
        return out

    def keywords(self) -> dict[str, Any]:
        """What the template is given beside the messages."""
        choice = (self.model_extra or {}).get("tool_choice")
        if not self.tools or choice == {"type": "none"}:
            return {}
        return {"tools": [_tool(tool, f"tools[{at}]") for at, tool in enumerate(self.tools)]}

    def until_breakpoint(self) -> PromptBody | None:
        """The prompt up to its last breakpoint; None when it has none.

        Tools come before the system prompt and that before the messages, as in Anthropic's API.
        """
        if self.cache_control is not None:
            return self
        for at in range(len(self.messages) - 1, -1, -1):
            content = self.messages[at].get("content")
            cut = _cut(content) if isinstance(content, list) else None
            if cut is not None:
                message = self.messages[at] | {"content": cut}
                return self.model_copy(update={"messages": [*self.messages[:at], message]})
        cut = _cut(self.system) if isinstance(self.system, list) else None
        if cut is not None:
            return self.model_copy(update={"messages": [], "system": cut})
        if any("cache_control" in tool for tool in self.tools or []):
            return self.model_copy(update={"messages": [], "system": None})
        return None


class MessagesBody(PromptBody):
    """A request to `/v1/messages`."""

    max_tokens: int = Field(ge=1)
    stop_sequences: list[str] | None = None
    model_config = ConfigDict(extra="allow")

    def asked(self) -> dict[str, Any]:
        """The engine's keywords."""
        named = self.sampling() | self.keywords() | {"max_tokens": self.max_tokens}
        if self.stop_sequences:
            named["stop"] = self.stop_sequences
        return named


class TokenCount(BaseModel):
    """The answer of `/v1/messages/count_tokens`."""

    input_tokens: int


@router.post("/v1/messages", summary="Answer a conversation in Anthropic's shape")
async def messages(
    body: MessagesBody, request: Request, caller: CallerOf, seat: SeatOf, service: ServiceOf
) -> Response:
    require_supported(body)
    require_model(body.model, service.model)
    controls = body.controls()
    conversation, keywords = body.conversation(), body.keywords()
    prompt = await service.tokens(conversation, keywords)
    written = await _written(service, body, prompt)
    asked = body.asked() | caller.asked(controls)
    asked.pop("tools", None)  # they are in the tokens
    running = await service.begin(seat, [(unpack(prompt), asked)], controls.deadline)
    told = caller.is_told(controls, always=service.config.report)
    tokenizer = service.hw.loaded.tokenizer
    counts = Counts(count(prompt), written)
    shape = MessagesShape(service.model, body, tokenizer.bytes_of, counts, told)
    return await answer(request, running, shape, stream=body.stream)


@router.post("/v1/messages/count_tokens", summary="Count a prompt's tokens")
async def count_tokens(body: PromptBody, seat: SeatOf, service: ServiceOf) -> Response:
    require_supported(body)
    require_model(body.model, service.model)
    prompt = await service.tokens(body.conversation(), body.keywords())
    return json_response({"input_tokens": count(prompt)})


async def _written(service: Service, body: PromptBody, prompt: bytes) -> int:
    """How many tokens of the prompt lie before its last breakpoint."""
    part = body.until_breakpoint()
    if part is None:
        return 0
    if not part.messages:  # without any, some templates write nothing, or refuse to
        part = part.model_copy(update={"messages": [{"role": "user", "content": ""}]})
    try:
        head = await service.tokens(part.conversation(), body.keywords())
    except BadRequest:  # the model's template wants the turns to alternate, say
        return 0
    return common_prefix(head, prompt)


class Counts(NamedTuple):
    """Tokens of a prompt: all, and those before its last breakpoint."""

    prompt: int
    written: int


class MessagesShape:
    """Writes the answer to one conversation."""

    def __init__(
        self,
        model: str,
        body: MessagesBody,
        bytes_of: BytesOf,
        counts: Counts,
        told: bool,  # noqa: FBT001 - data
    ) -> None:
        self._model = model
        self._stops = tuple(body.stop_sequences or ())
        self._bytes_of = bytes_of
        self._counts = counts
        self._told = told
        self._name = new_id("msg")
        self._text = ""
        self._tokens: list[int] = []
        self._reason = "stop"
        self._end: End | None = None

    def whole(self, results: Sequence[Result]) -> dict[str, Any]:
        [result] = results
        [choice] = result.choices
        reason = self._stop(choice.finish_reason or "stop", choice.text, choice.tokens)
        out = self._message([{"type": "text", "text": choice.text}], self._usage(result.usage))
        out |= reason
        return out | ({"headwater": report_of([result])} if self._told else {})

    def _message(self, content: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._name,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _stop(self, reason: str, text: str, tokens: Sequence[int]) -> dict[str, Any]:
        """Why it ended. A stop sequence is what the tokens say behind the text that was shown."""
        if reason == "length":
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        said = b"".join(map(self._bytes_of, tokens)).decode(errors="replace")
        for stop in sorted(self._stops, key=len, reverse=True):
            if said.startswith(stop, len(text)):
                return {"stop_reason": "stop_sequence", "stop_sequence": stop}
        return {"stop_reason": "end_turn", "stop_sequence": None}

    def _usage(self, usage: Usage) -> dict[str, Any]:
        read = usage.cached_tokens
        created = max(self._counts.written - read, 0)
        return {
            "input_tokens": usage.prompt_tokens - read - created,
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": read,
            "output_tokens": usage.completion_tokens,
        }

    def opening(self) -> Iterable[bytes]:
        # What was read from the cache is known, and said, at the end; clients take the last word.
        usage = self._usage(Usage(self._counts.prompt, 0, 0))
        start = self._message([], usage)
        yield event({"type": "message_start", "message": start}, "message_start")
        block = {"type": "text", "text": ""}
        begin = {"type": "content_block_start", "index": 0, "content_block": block}
        yield event(begin, "content_block_start")

    def events(self, prompt: int, piece: Piece) -> Iterable[bytes]:
        self._tokens += piece.tokens
        self._reason = piece.finish_reason or self._reason
        self._end = piece.end
        if piece.text:
            self._text += piece.text
            delta = {"type": "text_delta", "text": piece.text}
            more = {"type": "content_block_delta", "index": 0, "delta": delta}
            yield event(more, "content_block_delta")

    def closing(self) -> Iterable[bytes]:
        assert self._end is not None
        yield event({"type": "content_block_stop", "index": 0}, "content_block_stop")
        end: dict[str, Any] = {
            "type": "message_delta",
            "delta": self._stop(self._reason, self._text, self._tokens),
            "usage": self._usage(self._end.usage),
        }
        if self._told:
            end["headwater"] = report_of([self._end])
        yield event(end, "message_delta")
        yield event({"type": "message_stop"}, "message_stop")


def _messages(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """One of Anthropic's messages: its text, its tool calls, and a message for each tool result."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in {"user", "assistant", "system"}:
        raise ApiError(400, f"{where}.role is {role!r:.40}; it is user or assistant.", param=where)
    if not isinstance(content, list):
        return [{"role": role, "content": _text(content, f"{where}.content")}]
    results = [
        part for part in content if isinstance(part, dict) and part.get("type") == "tool_result"
    ]
    calls = [part for part in content if isinstance(part, dict) and part.get("type") == "tool_use"]
    texts = [part for part in content if part not in results and part not in calls]
    out: list[dict[str, Any]] = [
        {
            "role": "tool",
            "tool_call_id": str(part.get("tool_use_id", "")),
            "content": _text(part.get("content"), f"{where}.content"),
        }
        for part in results
    ]
    if texts or calls or not results:
        said: dict[str, Any] = {"role": role, "content": _text(texts, f"{where}.content")}
        if calls:
            said["tool_calls"] = [
                tool_call(part.get("id", ""), part.get("name"), part.get("input", {}), where)
                for part in calls
            ]
        out.append(said)
    return out


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """One of Anthropic's tools as templates know them."""
    if not isinstance(tool.get("name"), str) or tool.get("type", "custom") != "custom":
        raise ApiError(400, f"{where} has no name, or is a server's own tool.", param="tools")
    return {
        "type": "function",
        "function": {
            "name": tool["name"],
            "description": tool.get("description", ""),
            "parameters": tool.get("input_schema", {}),
        },
    }


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise ApiError(400, f"{where} is a string or a list of blocks.", param=where)
    for at, part in enumerate(content):
        if not (isinstance(part, dict) and part.get("type") == "text"):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise ApiError(400, f"{where}[{at}] is {kind!r:.40}; only text is served.", param=where)
    return "".join(str(part.get("text", "")) for part in content)


def _cut(blocks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]] | None:
    """Blocks up to the last that has a breakpoint; None without one."""
    marked = [
        at
        for at, block in enumerate(blocks)
        if isinstance(block, dict) and block.get("cache_control")
    ]
    return list(blocks[: marked[-1] + 1]) if marked else None
