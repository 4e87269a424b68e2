"""Text to tokens and back, one token at a time, for both spellings of bytes."""

from __future__ import annotations

import json
import random

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Fast

from headwater.engine.tokenizer import Tokenizer
from headwater.errors import BadRequest, ModelRefused
from tests.engine.tiny import make_tokenizer

TEXT = "grüß dich, 世界! 👩‍🚀🎉 e\u0301 \N{REPLACEMENT CHARACTER} and on"


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    make_tokenizer(folder)
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def sentence_piece(tmp_path_factory):
    """Characters of ASCII, everything else spelled in bytes."""
    folder = tmp_path_factory.mktemp("pieces")
    pieces = ["<unk>", "▁", *(f"<0x{byte:02X}>" for byte in range(256)), *"abcdefghi!?,."]
    fast = Fast(models.BPE({p: i for i, p in enumerate(pieces)}, [], byte_fallback=True))
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    fast.decoder = decoders.Sequence(parts)
    return write(folder, fast)


def write(folder, fast):
    fast.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return Tokenizer(folder)


@pytest.fixture(params=["byte_level", "sentence_piece"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def test_text_survives(tokenizer):
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_pieces_are_whole_characters_and_join_to_the_text(tokenizer):
    text = tokenizer.detokenizer()
    pieces = [text.push(token) for token in tokenizer.encode(TEXT)]
    assert "".join(pieces) + text.flush() == TEXT
    assert sum("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces) == 1, "the real one"
    assert "🎉" in pieces, "an emoji comes whole"
    assert text.flush() == ""


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_are_no_text_become_what_the_tokenizer_makes_of_them(byte_level, seed):
    draw = random.Random(seed)
    tokens = [draw.randrange(2, 300) for _ in range(50)]
    text = byte_level.detokenizer()
    pieces = [text.push(token) for token in tokens]
    assert "".join(pieces) + text.flush() == byte_level._fast.decode(tokens)


def test_an_answer_that_ends_inside_a_character_says_so(byte_level):
    text = byte_level.detokenizer()
    tokens = byte_level.encode("a🎉")
    assert "".join(map(text.push, tokens[:-1])) == "a"
    assert text.flush() == "\N{REPLACEMENT CHARACTER}"


def test_special_tokens_are_no_text_but_can_be_shown(byte_level):
    tokens = byte_level.encode("<|start|>hello<|end|>")
    assert byte_level.decode(tokens) == "hello"
    assert byte_level.show(tokens) == "<|start|>hello<|end|>"


def test_rows_of_embeddings_without_a_token_are_no_text(byte_level):
    assert byte_level.bytes_of(100_000) == b""


def odd(folder, vocabulary, added=()):
    """A byte-level tokenizer with a vocabulary of one's own."""
    fast = Fast(models.BPE(vocabulary, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_tokens([AddedToken(each, normalized=False) for each in added])
    return write(folder, fast)


def test_an_entry_that_is_not_spelled_in_bytes_is_taken_literally(tmp_path):
    tokenizer = odd(tmp_path, {"a": 0, "two words": 1, "世": 2, "Ġ": 3})
    assert [tokenizer.bytes_of(token).decode() for token in range(4)] == [
        tokenizer._fast.decode([token]) for token in range(4)
    ]


def test_an_added_token_is_its_own_text_whatever_it_looks_like(tmp_path):
    tokenizer = odd(tmp_path, {"a": 0}, added=["é", "Ġx", "世"])
    assert tokenizer.decode([0, 1, 2, 3]) == "aéĠx世"


def test_a_vocabulary_with_holes_has_no_text_there(tmp_path):
    tokenizer = odd(tmp_path, {"a": 0, "b": 7})
    assert [tokenizer.bytes_of(token) for token in (0, 3, 7, 8)] == [b"a", b"", b"b", b""]


def test_a_prompt_is_never_cut_or_filled_up_as_the_file_would_have_it(tmp_path):
    make_tokenizer(tmp_path)
    fast = Fast.from_file(str(tmp_path / "tokenizer.json"))
    fast.enable_truncation(5)
    fast.enable_padding(length=40)
    tokenizer = write(tmp_path, fast)
    for text in (TEXT, "a"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    chat = [{"role": "user", "content": TEXT}]
    assert TEXT in tokenizer.show(tokenizer.encode_chat(chat))
    assert tokenizer.encode("a")[1:] == []


def test_a_chat_ends_where_the_answer_begins(byte_level):
    tokens = byte_level.encode_chat([{"role": "user", "content": "hi"}])
    assert byte_level.show(tokens) == "<|start|>user\nhi<|end|>\n<|start|>assistant\n"


@pytest.mark.parametrize("message", [{"role": "user"}, {"content": "x"}, "text", 3])
def test_a_message_lacks_something(byte_level, message):
    with pytest.raises(BadRequest, match="needs a role and content"):
        byte_level.encode_chat([message])


def test_a_model_without_a_template_has_no_chat(sentence_piece):
    with pytest.raises(BadRequest, match="no chat template"):
        sentence_piece.encode_chat([{"role": "user", "content": "hi"}])


def test_a_template_that_objects_costs_one_sentence(tmp_path):
    make_tokenizer(tmp_path)
    template = "{{ raise_exception('only one system message') }}"
    (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(BadRequest, match="only one system message"):
        Tokenizer(tmp_path).encode_chat([{"role": "user", "content": "hi"}])


def test_a_tokenizer_that_decodes_in_another_way_is_refused(tmp_path):
    fast = Fast(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    fast.decoder = decoders.WordPiece()
    with pytest.raises(ModelRefused, match="decodes by WordPiece"):
        write(tmp_path, fast)
