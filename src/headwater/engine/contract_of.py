"""The contract of a model folder, read from its configuration. Needs no torch.

Every entry of config.json ends up in one of five places: the shape of KV, attention, position
encoding, the settings, or the list of harmless ones below. Settings is where an entry goes that
nothing here knows, so a new one makes contracts differ until somebody has looked at it. The other
way round, listing what counts, would let the one that nobody thought of through.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headwater.engine.sources.resolve import ModelFolder
from headwater.errors import ModelRefused
from headwater.identity.contract import Adapter, Facts, KVContract, KVForm, KVMeaning, TextFacts

DEFAULT_PAGE = 16

# How the engine's pool orders its axes (see engine.kv).
_LAYOUT = "layer,kv,token,head,dim"

# The families that came first have names of their own for what all others agree on. transformers
# knows these as attribute maps of its classes, which cannot be read without torch.
_ALIASES = {
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_embd": "hidden_size",
    "n_positions": "max_position_embeddings",
    "n_ctx": "max_position_embeddings",
}

# Entries that change no number of KV: where a model came from, how it was trained, what is done
# with its logits. The number format stands in the contract by itself, as the engine chose it.
_HARMLESS = frozenset(
    {
        "_name_or_path", "_model_name_or_path", "transformers_version", "dtype", "torch_dtype",
        "initializer_range", "attention_dropout", "hidden_dropout", "embd_pdrop", "resid_pdrop",
        "use_cache", "output_attentions", "output_hidden_states", "return_dict",
        "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id",
        "id2label", "label2id", "problem_type",
    }
)  # fmt: skip

_SHAPE = frozenset(
    {"architectures", "num_hidden_layers", "num_key_value_heads", "head_dim", "vocab_size"}
)
_POSITION = frozenset(
    {
        "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
        "max_position_embeddings",
    }
)  # fmt: skip

_PLAIN_ROPE = "default"


class Computing(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine computes and keeps KV: what a model's folder cannot know."""

    kv_dtype: str
    numerics: str
    form: KVForm

    @classmethod
    def uniform(cls, number: str = "float32", page: int = DEFAULT_PAGE) -> Computing:
        """Computing and keeping KV in one number format, in pages of so many tokens."""
        return cls(
            kv_dtype=number,
            numerics=number,
            form=KVForm(page_size=page, layout=_LAYOUT, codec="none"),
        )


PLAIN = Computing.uniform()


def contract_of(
    folder: ModelFolder,
    computing: Computing = PLAIN,
    *,
    adapter: Adapter | None = None,
) -> KVContract:
    """The contract of a model as an engine runs it, with the folder's own weights in memory.

    Raises ModelRefused for a configuration that does not tell the shape of KV.
    """
    config = _config(folder.path)
    heads = _number(config, "num_attention_heads")
    rest = {k: v for k, v in config.items() if k not in _SHAPE | _POSITION | _HARMLESS}
    attention = {k: v for k, v in rest.items() if _is_attention(k)}
    meaning = KVMeaning(
        weight_digest=folder.weight_digest,
        epoch=folder.weight_digest,  # so that a restart meets its old KV again
        architecture=_architecture(config),
        adapter=adapter,
        position_encoding=_position(config),
        attention=attention,
        settings={k: v for k, v in rest.items() if k not in attention},
        layers=_number(config, "num_hidden_layers"),
        kv_heads=_number(config, "num_key_value_heads", _usual_kv_heads(config, heads)),
        head_size=_number(config, "head_dim", _number(config, "hidden_size") // heads),
        vocabulary=_number(config, "vocab_size"),
        kv_dtype=computing.kv_dtype,
        media=_media(folder.path),
        numerics=computing.numerics,
    )
    return KVContract(meaning=meaning, form=computing.form, text=_text(folder.path))


def _config(folder: Path) -> Facts:
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=Facts)
    except (OSError, msgspec.DecodeError) as error:
        raise ModelRefused(f"{folder / 'config.json'} cannot be read as JSON.") from error
    return _renamed(config)


def _renamed(config: Facts) -> Facts:
    """The entries under the names that most families use."""
    renamed = {k: v for k, v in config.items() if k not in _ALIASES}
    for alias, name in _ALIASES.items():
        if alias in config:
            renamed.setdefault(name, config[alias])
    return renamed


def _usual_kv_heads(config: Facts, heads: int) -> int:
    """KV heads where they are not stated: one under GPT-BigCode's `multi_query`, else all."""
    return 1 if config.get("multi_query") is True else heads


def _number(config: Facts, name: str, default: int | None = None) -> int:
    """An entry that must be a positive number; absent and null both mean the default."""
    value = config.get(name)
    value = default if value is None else value
    if type(value) is not int or value < 1:
        raise ModelRefused(f"The model's configuration gives no usable {name}: {value}.")
    return value


def _architecture(config: Facts) -> str:
    match config.get("architectures"):
        case [str(name)]:
            return name
    raise ModelRefused("The model's configuration does not name its architecture.")


def _is_attention(name: str) -> bool:
    return "attention" in name or "attn" in name or "window" in name or name == "layer_types"


def _position(config: Facts) -> Facts:
    """The position encoding, alike for both ways in which configurations have spelt it.

    Older ones have rope_theta at the top and rope_scaling beside it, newer ones rope_parameters.
    """
    facts: Facts = {}
    for name in ("rope_theta", "partial_rotary_factor"):
        if config.get(name) is not None:  # 0 is a value, however little sense it makes
            facts[name] = config[name]
    facts |= _rope(config)
    if not facts:
        return facts  # positions are learned, or encoded in a way that the settings tell
    facts.setdefault("rope_type", _PLAIN_ROPE)
    by_layer = any(isinstance(value, dict) for value in facts.values())
    if by_layer or facts["rope_type"] != _PLAIN_ROPE:
        # What stretches with the context window depends on it; plain rope does not.
        facts["max_position_embeddings"] = config.get("max_position_embeddings")
    # 100000 and 100000.0 are one theta, and must be one fact.
    return {k: float(v) if type(v) is int else v for k, v in sorted(facts.items())}


def _rope(config: Facts) -> Facts:
    """The entries of the one dictionary that transformers reads: the older one, where it is."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise ModelRefused(f"The model's configuration gives no usable rope_scaling: {rope!r}.")
    return _one_type(rope) | {k: _one_type(v) for k, v in rope.items() if isinstance(v, dict)}


def _one_type(rope: Facts) -> Facts:
    """Without the oldest name of rope_type, which counts only where the newer one is absent."""
    facts = {k: v for k, v in rope.items() if k != "type"}
    if "type" in rope:
        facts.setdefault("rope_type", rope["type"])
    return facts


def _media(folder: Path) -> str | None:
    """Digest of what turns pictures and sound into embeddings, None for a model of text alone."""
    return _files_digest(folder, ["preprocessor_config.json", "processor_config.json"])


def _text(folder: Path) -> TextFacts:
    files = ["tokenizer.json", "tokenizer.model", "tokenizer_config.json", "added_tokens.json"]
    # A template in tokenizer_config.json, where older models have it, counts with that file.
    templates = ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"]
    return TextFacts(
        tokenizer_digest=_files_digest(folder, files),
        template_digest=_files_digest(folder, templates),
    )


def _files_digest(folder: Path, names: Iterable[str]) -> str | None:
    """SHA-256 over the names and digests of those files that exist, None when none does."""
    found = [(name, (folder / name).read_bytes()) for name in names if (folder / name).is_file()]
    lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in found)
    return hashlib.sha256(lines.encode()).hexdigest() if found else None
