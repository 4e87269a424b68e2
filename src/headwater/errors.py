"""Errors a user can meet. Each message is one sentence: what is wrong, and what to do."""

from __future__ import annotations


class HeadwaterError(Exception):
    """Base of all errors raised on purpose."""


class BadRequest(HeadwaterError):
    """The request can never be served as it is; HTTP shows it as a 400."""


class BadSetting(HeadwaterError):
    """A setting makes no sense, by itself or with the others."""


class ModelRefused(HeadwaterError):
    """The model cannot be run exactly; raised at load, never later."""


class ModelNotFound(HeadwaterError):
    """No model lies where the user pointed."""


class ContractError(HeadwaterError):
    """A contract is incomplete, damaged or of an unknown version."""


class Cancelled(HeadwaterError):
    """The request was cancelled before it finished."""


class EngineStopped(HeadwaterError):
    """The engine has stopped; the reason is in the message, and no request will be answered."""
