"""Headwater: a prefix cache for LLM inference.

    from headwater import Headwater

    with Headwater() as hw:
        result = hw.generate("The capital of France is", max_tokens=8)
        print(result.text, result.usage.cached_tokens)

Names are loaded when they are first used: reading this package needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.engine.api import Headwater
    from headwater.engine.asked import Wanted
    from headwater.engine.generation import AsyncGeneration, Generation
    from headwater.engine.loaded import LoadedModel
    from headwater.engine.options import Options
    from headwater.engine.results import Choice, Piece, Result
    from headwater.engine.sampling import SamplingParams
    from headwater.engine.stats import Stats
    from headwater.errors import (
        BadRequest,
        BadSetting,
        Cancelled,
        EngineStopped,
        HeadwaterError,
        ModelNotFound,
        ModelRefused,
    )
    from headwater.observe.explain import Report

_HOMES = {
    "Headwater": "engine.api",
    "Wanted": "engine.asked",
    "AsyncGeneration": "engine.generation",
    "Generation": "engine.generation",
    "LoadedModel": "engine.loaded",
    "Options": "engine.options",
    "Choice": "engine.results",
    "Piece": "engine.results",
    "Result": "engine.results",
    "SamplingParams": "engine.sampling",
    "Stats": "engine.stats",
    "Report": "observe.explain",
    "BadRequest": "errors",
    "BadSetting": "errors",
    "Cancelled": "errors",
    "EngineStopped": "errors",
    "HeadwaterError": "errors",
    "ModelNotFound": "errors",
    "ModelRefused": "errors",
}

__all__ = [
    "AsyncGeneration",
    "BadRequest",
    "BadSetting",
    "Cancelled",
    "Choice",
    "EngineStopped",
    "Generation",
    "Headwater",
    "HeadwaterError",
    "LoadedModel",
    "ModelNotFound",
    "ModelRefused",
    "Options",
    "Piece",
    "Report",
    "Result",
    "SamplingParams",
    "Stats",
    "Wanted",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
