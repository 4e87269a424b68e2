"""Fields of a body that are not acted upon: harmless ones are taken, others refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from headwater.server.errors import ApiError

HARMLESS = frozenset(
    {
        "inference_geo",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "user",
    }
)
"""Their effect is on billing, storage or statistics, never on the answer."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "background": (False,),
    "best_of": (1,),
    "container": (),
    "context_management": (),
    "conversation": (),
    "frequency_penalty": (0, 0.0),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1, 1.0),
    "logit_bias": ({},),
    "min_p": (0, 0.0),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "output_config": ({},),
    "prediction": (),
    "presence_penalty": (0, 0.0),
    "prompt": (),
    "reasoning": ({}, {"effort": None}, {"effort": "none"}),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1, 1.0),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "suffix": ("",),
    "text": ({}, {"format": {"type": "text"}}),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ("auto", "none", {"type": "auto"}, {"type": "none"}),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields that would change the answer, with the values at which they do not."""


def require_supported(body: BaseModel) -> None:
    """Look through what a body has beside its known fields.

    Raises ApiError, 400, with the name of the first that is not supported or not known.
    """
    for name, value in (body.model_extra or {}).items():
        if value is None or name in HARMLESS:
            continue
        if name not in NEUTRAL:
            raise ApiError(400, f"There is no field {name!r}.", param=name, code="unknown_field")
        if value not in NEUTRAL[name]:
            raise ApiError(
                400,
                f"The field {name!r} is not supported with this value; leave it out.",
                param=name,
                code="unsupported_field",
            )


def require_model(name: str | None, served: str) -> None:
    """Raises ApiError, 404, for a model that is not served."""
    if name is not None and name != served:
        raise ApiError(
            404,
            f"The model {name!r} is not served here; {served!r} is.",
            param="model",
            code="model_not_found",
        )
