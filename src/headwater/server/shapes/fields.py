"""Fields of a body that are not acted upon: harmless ones are taken, others refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from headwater.server.errors import ApiError

HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Their effect is on billing, storage or statistics, never on the answer."""

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0, 0.0),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "min_p": (0, 0.0),
    "modalities": (["text"],),
    "prediction": (),
    "presence_penalty": (0, 0.0),
    "reasoning": ({},),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1, 1.0),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "text": ({}, {"format": {"type": "text"}}),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ("auto", "none", {"type": "auto"}, {"type": "none"}),
    "truncation": ("disabled",),
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
