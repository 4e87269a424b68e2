"""What goes wrong, in the shape of the API that was asked.

OpenAI     {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
Anthropic  {"type": "error", "error": {"type": ..., "message": ...}}
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from headwater.errors import BadRequest, Cancelled, EngineStopped, HeadwaterError, ModelRefused


class ApiError(Exception):
    """A request that gets an error: its status and one sentence."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after


_OPENAI = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
}
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_of(error: HeadwaterError) -> ApiError:
    """An error of the library as one of the API."""
    match error:
        case BadRequest() | ModelRefused():
            return ApiError(400, str(error))
        case Cancelled():
            return ApiError(504, "The request was ended before it finished.", code="cancelled")
        case EngineStopped():
            return ApiError(503, str(error), code="engine_stopped")
        case _:
            return ApiError(500, str(error))


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


def error_response(error: ApiError, path: str) -> Response:
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = msgspec.json.encode(body_of(error, path))
    return Response(content, error.status, headers, media_type="application/json")
