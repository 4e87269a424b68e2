"""Errors a user can meet. Each message is one sentence: what is wrong, and what to do."""

from __future__ import annotations


class HeadwaterError(Exception):
    """Base of all errors raised on purpose."""


class BadRequest(HeadwaterError):
    """The request can never be served as it is; HTTP shows it as a 400."""


class PromptTooLong(BadRequest):
    """The prompt has more tokens than the model's context."""


class BadSetting(HeadwaterError):
    """A setting makes no sense, by itself or with the others."""


class ModelRefused(HeadwaterError):
    """The model cannot be run exactly; raised at load, never later."""


class ModelNotFound(HeadwaterError):
    """No model lies where the user pointed."""


class ContractError(HeadwaterError):
    """A contract is incomplete, damaged or of an unknown version."""


class Cancelled(HeadwaterError):
    """The request was cancelled before it finished; `report` says what its cache did until then."""

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


class EngineStopped(HeadwaterError):
    """The engine has stopped; the reason is in the message, and no request will be answered."""


class EngineMissing(HeadwaterError, ImportError):
    """The base install runs no model: the engine's packages are an extra."""

    @classmethod
    def because_of(cls, error: ModuleNotFoundError) -> EngineMissing | None:
        """What to tell a user whose import failed; None when it failed for another reason."""
        package = (error.name or "").partition(".")[0]
        if package in {"torch", "transformers", "safetensors", "tokenizers", "jinja2"}:
            return cls(
                "The engine is not installed; install it with: pip install 'headwater[engine]'"
            )
        if package in {
            "fastapi",
            "httpx2",
            "prometheus_client",
            "pydantic",
            "starlette",
            "uvicorn",
        }:
            return cls(
                "The server is not installed; install it with: pip install 'headwater[server]'"
            )
        return None
