"""Who asks, and what a request says about the cache beside its prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from headwater.server.desk import Seat
from headwater.server.errors import ApiError
from headwater.server.service import Service, service_of
from headwater.server.tenants import Tenant

PRIORITIES = 500
"""A request's own priority lies in (-500, 500) and orders it among its tenant's."""


class Controls(BaseModel):
    """The field `headwater` of any request.

    read: cached KV may be reused. store: what is computed may be reused. salt: narrows the sharing
    domain. priority: higher first, among the tenant's own. deadline: seconds until it is given up.
    report: put what the cache did into the answer.
    """

    model_config = ConfigDict(extra="forbid")

    read: bool = True
    store: bool = True
    salt: str = Field(default="", max_length=256)
    priority: int = Field(default=0, gt=-PRIORITIES, lt=PRIORITIES)
    deadline: float | None = Field(default=None, gt=0)
    report: bool | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant, and whether the request's headers ask for the cache's report."""

    tenant: Tenant
    wants_report: bool

    def asked(self, controls: Controls) -> dict[str, Any]:
        """The keywords of a request that follow from who asks it."""
        return {
            "domain": self.tenant.sharing,
            "salt": controls.salt,
            "priority": priority_of(self.tenant, controls.priority),
            "reads": controls.read,
            "stores": controls.store,
        }

    def is_told(self, controls: Controls, *, always: bool) -> bool:
        """Whether the answer carries the cache's report."""
        if controls.report is not None:
            return controls.report
        return self.wants_report or always


def priority_of(tenant: Tenant, own: int) -> int:
    """The engine's priority: a tenant's comes first, a request's own behind it."""
    return tenant.priority * 2 * PRIORITIES + own


def caller_of(request: Request) -> Caller:
    """Raises ApiError, 401, for a key that is nobody's."""
    service = service_of(request)
    key = key_of(request)
    tenant = service.tenants.of(key)
    if tenant is None:
        what = "No API key came with the request." if key is None else "This API key is unknown."
        headers = {"WWW-Authenticate": "Bearer"}
        raise ApiError(401, what, code="invalid_api_key", headers=headers)
    return Caller(tenant, request.headers.get("x-headwater-report", "0") in {"1", "true"})


def admin_of(request: Request) -> Caller:
    """Raises ApiError, 403, for anybody but an admin: here no server is open."""
    service = service_of(request)
    caller = caller_of(request)
    if not caller.tenant.admin:
        why = "" if service.has_admin else " No tenant with admin = true is configured."
        raise ApiError(403, f"This needs an admin's key.{why}", code="admin_only")
    return caller


def key_of(request: Request) -> str | None:
    """OpenAI's clients send a bearer token, Anthropic's a header of their own."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.headers.get("x-api-key")


# Coroutines, though they wait for nothing: a plain function would be called in a thread.


async def _service(request: Request) -> Service:
    return service_of(request)


async def _caller(request: Request) -> Caller:
    return caller_of(request)


async def _admin(request: Request) -> Caller:
    return admin_of(request)


ServiceOf = Annotated[Service, Depends(_service)]
CallerOf = Annotated[Caller, Depends(_caller)]
AdminOf = Annotated[Caller, Depends(_admin)]


async def _seat(caller: CallerOf, service: ServiceOf) -> AsyncIterator[Seat]:
    """A place at the desk, until the answer is sent at the latest. Raises ApiError, 429 or 503."""
    seat = service.desk.enter(caller.tenant)
    try:
        yield seat
    finally:
        seat.leave()


SeatOf = Annotated[Seat, Depends(_seat)]
