"""`/v1/completions`: OpenAI's text completion, of texts or token ids, one or a list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from headwater.cache.tokens import unpack
from headwater.engine.results import Choice, End, Piece, Result
from headwater.engine.sampling import TokenLogprobs
from headwater.server.answer import answer
from headwater.server.caller import CallerOf, SeatOf, ServiceOf
from headwater.server.errors import ApiError
from headwater.server.json_route import JsonRoute
from headwater.server.shapes.common import (
    BytesOf,
    OpenAIBody,
    new_id,
    now,
    report_of,
    token_text,
    usage_of,
)
from headwater.server.shapes.fields import require_model, require_supported
from headwater.server.sse import DONE, event

router = APIRouter(route_class=JsonRoute)
MOST_ANSWERS = 128
"""To all prompts of a request together."""


class CompletionBody(OpenAIBody):
    """A request to `/v1/completions`."""

    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None

    def prompts(self) -> list[str | list[int]]:
        """The prompts, however many."""
        given = self.prompt
        if isinstance(given, str):
            return [given]
        if not given:
            raise ApiError(400, "prompt is empty; send at least one token.", param="prompt")
        if isinstance(given[0], int):
            return [given]  # type: ignore[list-item]
        if len(given) * self.answers > MOST_ANSWERS:
            raise ApiError(400, f"At most {MOST_ANSWERS} answers a request.", param="prompt")
        return list(given)  # type: ignore[arg-type]

    def asked(self) -> dict[str, Any]:
        """The engine's keywords. `echo` without answers draws one token, which is not shown."""
        if self.max_tokens == 0 and not self.echo:
            raise ApiError(400, "max_tokens is 0 and nothing is echoed.", param="max_tokens")
        most = 16 if self.max_tokens is None else max(self.max_tokens, 1)
        named = self.keywords() | {"max_tokens": most}
        if self.logprobs is not None:
            named |= {"logprobs": self.logprobs, "prompt_logprobs": bool(self.echo)}
        return named


@router.post("/v1/completions", summary="Continue texts or token ids")
async def completions(
    body: CompletionBody, request: Request, caller: CallerOf, seat: SeatOf, service: ServiceOf
) -> Response:
    require_supported(body)
    require_model(body.model, service.model)
    if body.stream and body.echo:
        raise ApiError(400, "echo is not streamed; leave one of them out.", param="echo")
    controls = body.controls()
    asked = body.asked() | caller.asked(controls)
    prompts = body.prompts()
    running = await service.begin(seat, [(each, asked) for each in prompts], controls.deadline)
    told = caller.is_told(controls, always=service.config.report)
    echoes = [unpack(each.prompt).tolist() for each in running.generations]
    shape = CompletionShape(service.model, body, echoes, service.hw.loaded.tokenizer.bytes_of, told)
    return await answer(request, running, shape, stream=body.stream)


class CompletionShape:
    """Writes the answers to one request's prompts. Choices are numbered through all of them."""

    def __init__(
        self,
        model: str,
        body: CompletionBody,
        echoes: Sequence[Sequence[int]],
        bytes_of: BytesOf,
        told: bool,  # noqa: FBT001 - data
    ) -> None:
        self._head = {"id": new_id("cmpl"), "created": now(), "model": model}
        self._body = body
        self._echoes = echoes
        self._bytes_of = bytes_of
        self._told = told
        self._ends: dict[int, End] = {}
        self._offsets: dict[int, int] = {}

    def whole(self, results: Sequence[Result]) -> dict[str, Any]:
        choices = [
            self._choice(prompt, choice, result)
            for prompt, result in enumerate(results)
            for choice in result.choices
        ]
        usage = usage_of([result.usage for result in results])
        if self._body.max_tokens == 0:
            usage |= {"completion_tokens": 0, "total_tokens": usage["prompt_tokens"]}
        out: dict[str, Any] = self._head | {
            "object": "text_completion",
            "choices": choices,
            "usage": usage,
        }
        return out | ({"headwater": report_of(results)} if self._told else {})

    def _choice(self, prompt: int, choice: Choice, result: Result) -> dict[str, Any]:
        text, tokens = choice.text, list(choice.tokens)
        logprobs: list[TokenLogprobs | None] = list(choice.logprobs)
        if self._body.max_tokens == 0:
            text, tokens, logprobs = "", [], []
        if self._body.echo:
            echo = list(self._echoes[prompt])
            text = b"".join(map(self._bytes_of, echo)).decode(errors="replace") + text
            tokens = echo + tokens
            logprobs = [None, *result.prompt_logprobs, *logprobs]
        return {
            "index": prompt * self._body.answers + choice.index,
            "text": text,
            "logprobs": self._logprobs(tokens, logprobs, 0),
            "finish_reason": choice.finish_reason,
        }

    def _logprobs(
        self, tokens: Sequence[int], found: Sequence[TokenLogprobs | None], offset: int
    ) -> dict[str, Any] | None:
        """OpenAI's older form: four lists side by side. The first token of a prompt has no
        log-probability."""
        if self._body.logprobs is None:
            return None
        texts = [token_text(self._bytes_of, token) for token in tokens]
        offsets = [offset]
        for text in texts:
            offsets.append(offsets[-1] + len(text))
        return {
            "tokens": texts,
            "token_logprobs": [None if each is None else each.drawn for each in found],
            "top_logprobs": [
                None
                if each is None
                else {token_text(self._bytes_of, token): value for token, value in each.top}
                for each in found
            ],
            "text_offset": offsets[:-1],
        }

    def opening(self) -> Iterable[bytes]:
        return ()

    def events(self, prompt: int, piece: Piece) -> Iterable[bytes]:
        index = prompt * self._body.answers + piece.choice
        if piece.text or piece.logprobs or piece.finish_reason is not None:
            offset = self._offsets.get(index, 0)
            logprobs = self._logprobs(piece.tokens, piece.logprobs, offset)
            if logprobs is not None:
                self._offsets[index] = offset + sum(map(len, logprobs["tokens"]))
            choice = {
                "index": index,
                "text": piece.text,
                "logprobs": logprobs,
                "finish_reason": piece.finish_reason,
            }
            yield event(self._head | {"object": "text_completion", "choices": [choice]})
        if piece.end is not None:
            self._ends[prompt] = piece.end

    def closing(self) -> Iterable[bytes]:
        ends = [self._ends[prompt] for prompt in sorted(self._ends)]
        if ends and (self._body.wants_usage or self._told):
            last = self._head | {"object": "text_completion", "choices": []}
            if self._body.wants_usage:
                last["usage"] = usage_of([end.usage for end in ends])
            if self._told:
                last["headwater"] = report_of(ends)
            yield event(last)
        yield DONE
