"""What goes wrong, in the shape of the API that was asked.

OpenAI     {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
Anthropic  {"type": "error", "error": {"type": ..., "message": ...}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from headwater.errors import (
    BadRequest,
    BadSetting,
    Cancelled,
    EngineStopped,
    HeadwaterError,
    ModelNotFound,
    ModelRefused,
    PromptTooLong,
)


class ApiError(Exception):
    """A request that gets an error: its status and one sentence."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}


def busy(status: int, message: str, *, code: str, seconds: int) -> ApiError:
    """An error that says when to ask again."""
    return ApiError(status, message, code=code, headers={"Retry-After": str(seconds)})


_OPENAI = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_of(error: HeadwaterError) -> ApiError:
    """An error of the library as one of the API."""
    match error:
        case PromptTooLong():
            return ApiError(400, str(error), code="context_length_exceeded")
        case BadRequest() | BadSetting() | ModelNotFound() | ModelRefused():
            return ApiError(400, str(error))
        case Cancelled():
            return ApiError(504, "The request was ended before it finished.", code="cancelled")
        case EngineStopped():
            # Why stands in the log: it may be about anybody's request.
            return ApiError(503, "The engine has stopped.", code="engine_stopped")
        case _:  # as things are now: weights are being replaced, say
            return ApiError(409, str(error), code="conflict")


def body_of(error: ApiError, path: str) -> dict[str, Any]:
    """The error as JSON, for whoever asked at `path`."""
    if path.startswith("/v1/messages"):
        kind = _ANTHROPIC.get(error.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}}
    kind = _OPENAI.get(error.status, "server_error")
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.param,
            "code": error.code,
        }
    }


def event_of(error: ApiError, path: str) -> tuple[str | None, dict[str, Any]]:
    """The error as the last event of a stream: its name, if the API names its events, and data."""
    body = body_of(error, path)
    if path.startswith("/v1/messages"):
        return "error", body
    if path.startswith("/v1/responses"):
        # Clients that know only OpenAI's type of this event find the same beside `error`.
        plain = {"message": error.message, "param": error.param, "code": error.code}
        return "error", {"type": "error"} | plain | body
    return None, body


def error_response(error: ApiError, path: str) -> Response:
    content = msgspec.json.encode(body_of(error, path))
    return Response(content, error.status, error.headers, media_type="application/json")
