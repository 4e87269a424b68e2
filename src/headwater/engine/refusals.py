"""Models that cannot be served exactly, recognised by their configuration before loading weights.

Two kinds are refused. Attention that is not plain softmax over all earlier positions would be
computed wrongly over the pool. And KV that depends on more than the tokens before it, such as
rotary frequencies that change with the length of the sequence, would be wrong to *reuse* even if
it is computed rightly: a check of logits cannot see that, so it must be known by name.
What the configuration does not betray is left to `self_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from transformers import PreTrainedConfig

from headwater.errors import ModelRefused

# Rotary encodings whose frequencies depend on how long the sequence in the batch happens to be.
_LENGTH_DEPENDENT = ("dynamic", "longrope")

_ALIBI_MODELS = ("bloom", "mpt")


def refuse_unsupported(config: PreTrainedConfig) -> None:
    """Raise ModelRefused, with one sentence, for a model that cannot be served exactly."""
    for refused, why in _REFUSALS:
        if refused(config):
            raise ModelRefused(f"The model {config.model_type!r} {why}.")


def _has(*names: str) -> Callable[[PreTrainedConfig], bool]:
    return lambda config: any(getattr(config, name, None) for name in names)


def _has_other_layers(config: PreTrainedConfig) -> bool:
    return any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ())


def _has_window(config: PreTrainedConfig) -> bool:
    window = getattr(config, "sliding_window", None)
    return bool(window) and getattr(config, "use_sliding_window", True)


def _is_multimodal(config: PreTrainedConfig) -> bool:
    return config.get_text_config() is not config


def _uses_alibi(config: PreTrainedConfig) -> bool:
    return bool(getattr(config, "alibi", False)) or config.model_type in _ALIBI_MODELS


def _rotates_by_length(config: PreTrainedConfig) -> bool:
    rope = getattr(config, "rope_parameters", None) or {}
    per_layer_type = [each for each in rope.values() if isinstance(each, Mapping)]
    return any(each.get("rope_type") in _LENGTH_DEPENDENT for each in [rope, *per_layer_type])


_REFUSALS: tuple[tuple[Callable[[PreTrainedConfig], bool], str], ...] = (
    (_has("is_encoder_decoder"), "is an encoder-decoder, and only decoders are supported"),
    (_is_multimodal, "takes more than text, which is not supported"),
    (_has_window, "attends within a sliding window, which is not supported"),
    (_has("attention_chunk_size"), "attends within chunks, which is not supported"),
    (_has("kv_lora_rank"), "keeps compressed (latent) KV, which is not supported"),
    (
        _has("ssm_cfg", "mamba_d_state", "ssm_state_size", "state_size", "linear_num_key_heads"),
        "carries a recurrent state, which a prefix cache of KV cannot restore",
    ),
    (_has_other_layers, "has layers other than full attention, which are not supported"),
    (_has("attn_logit_softcapping"), "caps attention scores, which is not supported"),
    (_uses_alibi, "encodes positions by ALiBi, which is not supported"),
    (
        _rotates_by_length,
        "changes its rotary frequencies with the length of a sequence, so its KV cannot be reused",
    ),
)
