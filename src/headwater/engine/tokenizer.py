"""A model's tokenizer: text to tokens, chat messages to tokens, a token to its bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from headwater.engine.detokenize import Detokenizer
from headwater.errors import BadRequest, ModelRefused, PromptTooLong

Message = Mapping[str, Any]
"""A chat message: `role`, `content`, and whatever else the model's template reads."""

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Tokenizer:
    """Wraps the fast tokenizer of a model folder. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read the folder. Raises ModelRefused when its tokens cannot be turned into bytes."""
        from transformers import AutoTokenizer  # it brings torch; what is asked is checked before

        try:
            self._whole = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            self._fast = self._whole.backend_tokenizer
        except (OSError, ValueError, AttributeError) as error:
            raise ModelRefused(f"The tokenizer in {folder} cannot be read: {error}") from error
        # A file may come with the limits of its training; here a prompt is taken whole or refused.
        self._fast.no_truncation()
        self._fast.no_padding()
        added = self._fast.get_added_tokens_decoder()
        self._special = {t: each.content.encode() for t, each in added.items() if each.special}
        self._bytes = _vocabulary(self._fast)
        self._longest = _longest(self._fast)
        # What transformers itself takes beside a template's variables: a caller's template, say.
        self._own_options = signature(self._whole.apply_chat_template).parameters.keys()

    def encode(self, text: str, room: int | None = None) -> list[int]:
        """The tokens of a text, with what the tokenizer puts before every text.

        room: most tokens there may be. Raises BadRequest for a text that cannot have so few.
        """
        return self._encode(text, room, add_special_tokens=True)

    def encode_chat(
        self,
        messages: Sequence[Message],
        room: int | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The tokens of a conversation, up to where the assistant's next answer begins.

        tools, options: what the model's template is given beside the messages.
        """
        text = self.render(messages, tools=tools, options=options)
        return self._encode(text, room, add_special_tokens=False)

    def encode_rendered(self, text: str, room: int | None = None) -> list[int]:
        """The tokens of a text as `render` makes it, or of a part of one."""
        return self._encode(text, room, add_special_tokens=False)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """A conversation as the model's template writes it.

        Raises BadRequest when the template refuses it, or would leave the tools out.
        """
        if not self._whole.chat_template:
            raise BadRequest("This model has no chat template; send the prompt as text.")
        for message in messages:
            if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
                raise BadRequest("A chat message needs a role and content.")
        text = self._rendered(messages, tools, options or {})
        if tools and text == self._rendered(messages, (), options or {}):
            raise BadRequest("This model's chat template does not show tools to the model.")
        return text

    def _rendered(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> str:
        if taken := self._own_options & options.keys():
            raise BadRequest(f"{sorted(taken)[0]!r} is not for a request to say.")
        try:
            text: str = self._whole.apply_chat_template(
                list(messages),
                tools=[dict(tool) for tool in tools] or None,
                tokenize=False,
                add_generation_prompt=True,
                **options,
            )
        except (TemplateError, LookupError, TypeError, ValueError) as error:
            raise BadRequest(f"The model's chat template refuses the messages: {error}.") from error
        return text

    def _encode(self, text: str, room: int | None, *, add_special_tokens: bool) -> list[int]:
        size = require_unicode(text)
        if room is not None and size > room * self._longest:
            raise PromptTooLong(
                f"The prompt has {size} bytes, and {room} tokens, the model's context, cannot hold "
                f"more than {room * self._longest}; shorten the prompt."
            )
        # A batch, though of one: only for batches is the GIL released, and megabytes take seconds.
        [encoded] = self._fast.encode_batch([text], add_special_tokens=add_special_tokens)
        tokens: list[int] = encoded.ids
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return b"".join(map(self.bytes_of, tokens)).decode(errors="replace")

    def show(self, tokens: Sequence[int]) -> str:
        """`decode` for people: special tokens are spelled out."""
        parts = [self._special.get(token) or self.bytes_of(token) for token in tokens]
        return b"".join(parts).decode(errors="replace")

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self.bytes_of)

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token adds to a text."""
        # A model may have more rows of embeddings than its tokenizer has tokens.
        return self._bytes[token] if token < len(self._bytes) else b""


def require_unicode(text: str) -> int:
    """The bytes of a text in UTF-8.

    Half of a surrogate pair is no character; nothing behind this point could encode it.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise BadRequest(f"The text is no Unicode at character {error.start}.") from error


class ByteLevel:
    """Every byte is written as one printable character (GPT-2 and most since)."""

    def __init__(self) -> None:
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(0x100) if byte not in printable]
        self._byte = {chr(byte): byte for byte in printable}
        self._byte |= {chr(0x100 + index): byte for index, byte in enumerate(others)}

    def bytes_of(self, spelled: str) -> bytes:
        try:
            return bytes(self._byte[character] for character in spelled)
        except KeyError:  # not written in this way after all: tokenizers takes it literally, too
            return spelled.encode()


class SentencePiece:
    """Text with `▁` for a space; a byte that is no whole character is spelled `<0xE2>`."""

    def bytes_of(self, spelled: str) -> bytes:
        byte = _BYTE.fullmatch(spelled)
        return bytes.fromhex(byte[1]) if byte else spelled.replace("▁", " ").encode()


def _vocabulary(fast: Any) -> list[bytes]:
    """The bytes of every token, by id; none for a special one, and for an id without a token.

    All at load: what cannot be spelled is then seen before anything is served, and the threads
    that read text share nothing that changes. 150,000 tokens take a fifth of a second.
    """
    spelling = _spelling(set(_decoders(fast.decoder)))
    spelled = fast.get_vocab(with_added_tokens=True)
    table = [b""] * (max(spelled.values(), default=-1) + 1)
    for token, at in spelled.items():
        table[at] = spelling.bytes_of(token)
    for at, each in fast.get_added_tokens_decoder().items():  # these are written as they are
        table[at] = b"" if each.special else each.content.encode()
    return table


def _longest(fast: Any) -> int:
    """Most bytes of a text that one token can stand for.

    Every spelling is at least as long as what it spells: a byte is written as one character or
    more. So a text of n bytes has n / longest tokens or more, unless the tokenizer drops text (runs
    of spaces beside an added token, or folded into one unknown). Such a text is refused as well
    when it is that long: what it costs to read depends on its bytes, not on its tokens.
    """
    return max((len(each.encode()) for each in fast.get_vocab(with_added_tokens=True)), default=1)


def _spelling(decoders: set[str]) -> ByteLevel | SentencePiece:
    if "ByteLevel" in decoders:
        return ByteLevel()
    if decoders & {"ByteFallback", "Metaspace"}:
        return SentencePiece()
    named = ", ".join(sorted(decoders)) or "nothing"
    raise ModelRefused(f"This model's tokenizer decodes by {named}, which is not supported.")


def _decoders(decoder: Any) -> Iterator[str]:
    """The types of a decoder and of its parts."""
    parts = [json.loads(decoder.__getstate__())] if decoder is not None else []
    while parts:
        part = parts.pop()
        yield part["type"]
        parts += part.get("decoders", ())
