"""A contract to vary, and every way to vary one of its facts alone."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.identity.contract import Adapter, KVContract, KVForm, KVMeaning, TextFacts

SAMPLE = KVContract(
    meaning=KVMeaning(
        weight_digest="a" * 64,
        epoch="b" * 32,
        architecture="LlamaForCausalLM",
        adapter=None,
        position_encoding={"rope_theta": 100000.0, "rope_type": "default"},
        attention={"num_attention_heads": 9},
        settings={"rms_norm_eps": 1e-05},
        layers=30,
        kv_heads=3,
        head_size=64,
        vocabulary=49152,
        kv_dtype="float32",
        media=None,
        numerics="float32",
    ),
    form=KVForm(page_size=16, layout="layer,kv,token,head,dim", codec="none"),
    text=TextFacts(tokenizer_digest="c" * 64, template_digest=None),
)

ADAPTER = Adapter(digest="d" * 64, scale=2.0, from_position=0)

# field of KVMeaning -> another value of it
OTHER_MEANING: dict[str, Any] = {
    "weight_digest": "0" * 64,
    "epoch": "0" * 32,
    "architecture": "MistralForCausalLM",
    "adapter": ADAPTER,
    "position_encoding": {"rope_theta": 10000.0, "rope_type": "default"},
    "attention": {"num_attention_heads": 9, "sliding_window": 4096},
    "settings": {},
    "layers": 31,
    "kv_heads": 9,
    "head_size": 32,
    "vocabulary": 49153,
    "kv_dtype": "bfloat16",
    "media": "0" * 64,
    "numerics": "float32, deterministic",
}

OTHER_ADAPTER: dict[str, Any] = {"digest": "0" * 64, "scale": 1.0, "from_position": 1}

OTHER_FORM: dict[str, Any] = {"page_size": 32, "layout": "kv,layer,token,head,dim", "codec": "fp8"}


def varied(contract: KVContract, part: str, field: str, value: object) -> KVContract:
    """The contract with one field of one of its parts replaced."""
    inner = msgspec.structs.replace(getattr(contract, part), **{field: value})
    return msgspec.structs.replace(contract, **{part: inner})
