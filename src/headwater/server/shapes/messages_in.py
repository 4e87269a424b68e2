"""Chat messages as OpenAI's and Anthropic's clients send them, as a model's template takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.server.errors import ApiError

ROLES = {"system", "developer", "user", "assistant", "tool"}


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI's messages. Raises ApiError, 400, for one that cannot be shown to the model."""
    if not messages:
        raise ApiError(400, "messages is empty; send at least one.", param="messages")
    return [_message(message, f"messages[{at}]") for at, message in enumerate(messages)]


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise ApiError(400, f"{where}.role is {role!r:.40}; it is one of {known}.", param=where)
    out: dict[str, Any] = {
        "role": "system" if role == "developer" else role,
        "content": text_of(message.get("content"), f"{where}.content"),
    }
    if message.get("tool_calls"):
        out["tool_calls"] = _tool_calls(message["tool_calls"], f"{where}.tool_calls")
    for name in ("name", "tool_call_id"):
        if isinstance(message.get(name), str):
            out[name] = message[name]
    for name in ("audio", "function_call"):
        if message.get(name):
            raise ApiError(400, f"{where}.{name} is not supported.", param=where)
    return out


def text_of(content: Any, where: str) -> str:
    """The text of a content: a string, or parts that are texts. Raises ApiError, 400."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part(part, f"{where}[{at}]") for at, part in enumerate(content))
    raise ApiError(400, f"{where} is a string or a list of parts.", param=where)


def _part(part: Any, where: str) -> str:
    if isinstance(part, dict) and part.get("type") in {"text", "input_text", "output_text"}:
        text = part.get("text")
        if isinstance(text, str):
            return text
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise ApiError(400, f"{where} is {kind!r:.40}; only text is served.", param=where)


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Arguments as objects: templates write them out themselves, and a string twice quoted."""
    if not isinstance(calls, list):
        raise ApiError(400, f"{where} is a list.", param=where)
    out = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise ApiError(400, f"{where} has a call without a function.", param=where)
        arguments = _arguments(function.get("arguments"))
        out.append(tool_call(call.get("id", ""), function.get("name"), arguments, where))
    return out


def tool_call(name: Any, function: Any, arguments: Any, where: str) -> dict[str, Any]:
    """A call of a tool as templates know it. Raises ApiError, 400."""
    if not isinstance(name, str) or not isinstance(function, str):
        raise ApiError(400, f"{where} has a call whose id or name is no string.", param=where)
    called = {"name": function, "arguments": arguments}
    return {"id": name, "type": "function", "function": called}


def _arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given
