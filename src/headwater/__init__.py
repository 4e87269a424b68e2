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

from headwater import errors

# Where each public name lives. Type checkers read the same from the imports below: they follow no
# table, and a table is what loads nothing before it is asked for.
_HOMES = {
    "AsyncGeneration": "engine.generation",
    "BadRequest": "errors",
    "BadSetting": "errors",
    "Cancelled": "errors",
    "Choice": "engine.results",
    "EngineMissing": "errors",
    "EngineStopped": "errors",
    "Generation": "engine.generation",
    "Headwater": "engine.api",
    "HeadwaterError": "errors",
    "LoadedModel": "engine.loaded",
    "ModelNotFound": "errors",
    "ModelRefused": "errors",
    "Piece": "engine.results",
    "PromptTooLong": "errors",
    "Report": "observe.explain",
    "Result": "engine.results",
    "Stats": "engine.stats",
}

__all__ = list(_HOMES)

if TYPE_CHECKING:
    from headwater.engine.api import Headwater as Headwater
    from headwater.engine.generation import AsyncGeneration as AsyncGeneration
    from headwater.engine.generation import Generation as Generation
    from headwater.engine.loaded import LoadedModel as LoadedModel
    from headwater.engine.results import Choice as Choice
    from headwater.engine.results import Piece as Piece
    from headwater.engine.results import Result as Result
    from headwater.engine.stats import Stats as Stats
    from headwater.errors import BadRequest as BadRequest
    from headwater.errors import BadSetting as BadSetting
    from headwater.errors import Cancelled as Cancelled
    from headwater.errors import EngineMissing as EngineMissing
    from headwater.errors import EngineStopped as EngineStopped
    from headwater.errors import HeadwaterError as HeadwaterError
    from headwater.errors import ModelNotFound as ModelNotFound
    from headwater.errors import ModelRefused as ModelRefused
    from headwater.errors import PromptTooLong as PromptTooLong
    from headwater.observe.explain import Report as Report


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise errors.EngineMissing.because_of(error) or error from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
