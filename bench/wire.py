"""A bare HTTP client: one POST, and its server-sent events with the time each came.

Client libraries cost more per event than the server does; on two cores that would be measured as
the server's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """A streamed answer. Times are monotonic seconds, which all processes of a machine share.

    texts: (when it came, text) of each event that brought text. usage: of the last event.
    """

    sent: float
    status: int = 0
    texts: list[tuple[float, str]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: str = ""

    @property
    def first_token(self) -> float:
        """Seconds to the first text; infinity when there was none."""
        return self.texts[0][0] - self.sent if self.texts else float("inf")

    @property
    def cached_tokens(self) -> int:
        details = (self.usage or {}).get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or 0)


async def stream(
    port: int, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Answer:
    """POST to a server on this machine and read the stream to its end."""
    content = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}})
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    lines += [f"Content-Length: {len(content.encode())}", "Connection: close", "", content]
    answer = Answer(time.monotonic())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write("\r\n".join(lines).encode())
        await writer.drain()
        answer.status = int((await reader.readline()).split()[1])
        if answer.status != 200:
            answer.error = (await reader.read()).decode(errors="replace")[-400:]
            return answer
        async for line in reader:
            if line.startswith(b"data: {"):
                _take(answer, json.loads(line[6:]))
    finally:
        writer.close()
    return answer


def _take(answer: Answer, event: dict[str, Any]) -> None:
    now = time.monotonic()
    answer.usage = event.get("usage") or answer.usage
    for choice in event.get("choices", ()):
        text = choice.get("text") or (choice.get("delta") or {}).get("content")
        if text:
            answer.texts.append((now, text))
    if "error" in event:
        answer.error = str(event["error"])


async def wait_until_ready(port: int, seconds: float) -> bool:
    """Whether a server answers /v1/models within some time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            status = (await reader.readline()).split()
            writer.close()
            if len(status) > 1 and status[1] in (b"200", b"401"):
                return True
        except OSError:
            pass
        await asyncio.sleep(0.3)
    return False
