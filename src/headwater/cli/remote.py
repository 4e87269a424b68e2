"""A running server, as the commands that talk to one see it."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from headwater.errors import BadSetting, HeadwaterError

if TYPE_CHECKING:
    from httpx2 import Response

Kind = TypeVar("Kind")

URL = "http://127.0.0.1:8000"
KEY = "HEADWATER_API_KEY"
LONGEST = 900.0
"""Seconds until a silent server is given up: longer than one lets a request take by default."""


class ServerTrouble(HeadwaterError):
    """A server that cannot be reached, or that answers with an error of this status."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def add_server(parser: ArgumentParser) -> None:
    """Let a command name a server."""
    parser.add_argument(
        "url", nargs="?", default=URL, metavar="URL", help="the server (default: %(default)s)"
    )
    add_key(parser)


def add_key(parser: ArgumentParser) -> None:
    """Let a command bring an API key."""
    parser.add_argument(
        "--key",
        metavar="KEY",
        help=f"the API key, where the server asks for one; better kept from the eyes of others in "
        f"the variable {KEY}, which is also read",
    )


def key_of(arguments: Namespace) -> str | None:
    """The key that was given, by either way."""
    return arguments.key or os.environ.get(KEY) or None


class Remote:
    """Talks to one server. To be used in a `with` block."""

    def __init__(self, url: str, key: str | None = None, patience: float = LONGEST) -> None:
        """patience: seconds the server may say nothing. Raises BadSetting for what is no URL."""
        import httpx2

        self.url = base_of(url)
        self.key = key
        headers = {"X-Headwater-Report": "1"}
        if key is not None:
            headers["Authorization"] = f"Bearer {_plain(key)}"
        self._client = httpx2.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx2.Timeout(patience, connect=min(patience, 5.0)),
            trust_env=not self.is_plain_loopback,  # a proxy does not lead to this machine
        )

    @property
    def is_loopback(self) -> bool:
        """Only this machine is talked to."""
        from headwater.server.config import is_loopback

        return is_loopback(urlsplit(self.url).hostname or "")

    @property
    def is_encrypted(self) -> bool:
        return self.url.startswith("https:")

    @property
    def is_plain_loopback(self) -> bool:
        return self.is_loopback and not self.is_encrypted

    def get(self, path: str, kind: type[Kind]) -> Kind:
        """What the server says at a path. Raises ServerTrouble."""
        with self._asking("GET", path) as response:
            return _decoded(response.read(), kind, path)

    def text(self, path: str) -> str:
        """The same as a text."""
        with self._asking("GET", path) as response:
            return response.read().decode(errors="replace")

    def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """What the server answers to a body. Raises ServerTrouble."""
        with self._asking("POST", path, body) as response:
            return _decoded(response.read(), kind, path)

    def stream(
        self, path: str, body: Mapping[str, Any], kind: type[Kind]
    ) -> Generator[Kind, None, None]:
        """The events of a streamed answer. Raises ServerTrouble, also for one that breaks off.

        Closing the generator ends the request.
        """
        with self._asking("POST", path, body) as response:
            for data in events_of(response.iter_bytes()):
                if data == b"[DONE]":
                    return
                if data.startswith(b'{"error"'):
                    raise ServerTrouble(_said(data) or "The server failed in mid-answer.")
                yield _decoded(data, kind, path)
        raise ServerTrouble("The answer broke off; the server may have been stopped.")

    @contextmanager
    def _asking(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Iterator[Response]:
        """A response that is no error, to be read inside."""
        import httpx2

        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        asked = self._client.build_request(method, path, content=content, headers=headers)
        try:
            response = self._client.send(asked, stream=True)
            try:
                if not response.is_success:
                    raise self._trouble(response)
                yield response
            finally:
                response.close()
        except httpx2.ConnectError as error:
            raise ServerTrouble(
                f"{self.url} cannot be reached ({_reason(error)}); is the server running there?"
            ) from error
        except httpx2.TimeoutException as error:
            raise ServerTrouble(f"{self.url} did not answer in time.") from error
        except httpx2.TransportError as error:
            raise ServerTrouble(f"{self.url} broke off: {_reason(error)}.") from error

    def _trouble(self, response: Response) -> ServerTrouble:
        status = response.status_code
        said = _said(response.read())
        if said is None:
            said = f"{self.url} answered {status} without saying why; is that Headwater?"
        elif status == 401:
            said = f"{said} Give the right one with --key or {KEY}."
        return ServerTrouble(said, status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def base_of(url: str) -> str:
    """A server's address as people write it: without a scheme, or with the /v1 that OpenAI's
    clients want behind it. Raises BadSetting for what is none."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_address = parts.scheme in {"http", "https"} and parts.hostname and port != 0
    if not is_address or re.search(r"\s", whole):
        raise BadSetting(f"{url!r} is no server's address; write one as in {URL}.")
    return whole.rstrip("/").removesuffix("/v1").rstrip("/")


def looks_like_url(word: str) -> bool:
    return re.fullmatch(r"https?://\S+|[\w.-]+:\d+/?\S*", word) is not None


def events_of(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The data of server-sent events, from bytes that are cut anywhere.

    Lines end with a line feed and nothing else: a model's text has other characters at which
    Python would split.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


class _Error(msgspec.Struct):
    message: str


class _Refused(msgspec.Struct):
    """An error in OpenAI's shape, or what /readyz says."""

    error: _Error | None = None
    reason: str | None = None


def _said(content: bytes) -> str | None:
    """The sentence in an error's body; None where there is none."""
    try:
        refused = msgspec.json.decode(content, type=_Refused)
    except msgspec.DecodeError:
        return None
    return refused.error.message if refused.error is not None else refused.reason


def _decoded(content: bytes, kind: type[Kind], path: str) -> Kind:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ServerTrouble(f"{path} does not answer as Headwater does: {error}.") from error


def _reason(error: Exception) -> str:
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)).rstrip(".") or type(error).__name__


def _plain(key: str) -> str:
    if not key.isascii() or not key.isprintable():
        raise BadSetting("An API key has letters, digits and signs only; this one has others.")
    return key
