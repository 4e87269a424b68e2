"""`/v1/admin/...`: for operators: the whole tree, all requests, other weights, the end."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headwater.observe.tree_view import NodeView
from headwater.server.answer import json_response
from headwater.server.caller import AdminOf, ServiceOf
from headwater.server.errors import ApiError
from headwater.server.json_route import JsonRoute

router = APIRouter(prefix="/v1/admin", route_class=JsonRoute)


class WeightsBody(BaseModel):
    """Other weights for the model that is served."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1, description="A folder or GGUF file on the server's machine.")
    mode: Literal["restart", "drain"] = "restart"


class FlushBody(BaseModel):
    """Whose KV to forget."""

    model_config = ConfigDict(extra="forbid")

    tenant: str


@router.get("/tree", summary="The most used nodes of the prefix tree")
async def tree(
    admin: AdminOf,
    service: ServiceOf,
    limit: int = 200,
    text: bool = False,  # noqa: FBT001, FBT002 - a query's
) -> Response:
    """Prefixes are redacted unless `text` is asked for."""
    nodes = await service.ask(lambda: service.hw.cache.tree(min(max(limit, 1), 5000)))
    page_bytes = service.hw.page_bytes
    show = service.hw.loaded.tokenizer.show
    return json_response(
        {"nodes": [_node(each, page_bytes) | (_text(each, show) if text else {}) for each in nodes]}
    )


def _node(node: NodeView, page_bytes: int) -> dict[str, Any]:
    plain = msgspec.to_builtins(node)
    del plain["head"]
    return plain | {"bytes": node.pages * page_bytes}


def _text(node: NodeView, show: Any) -> dict[str, Any]:
    return {"head": show(list(node.head))}


@router.get("/stats", summary="What the engine is doing")
async def stats(admin: AdminOf, service: ServiceOf) -> Response:
    found = await service.ask(service.hw.stats)
    return json_response(
        msgspec.to_builtins(found)
        | {
            "page_bytes": service.hw.page_bytes,
            "busy": {name: busy for name, busy in service.desk.busy.items() if busy},
            "waiting_for_first_token": service.desk.waiting,
        }
    )


@router.get("/requests", summary="The last requests of all tenants")
async def requests(admin: AdminOf, service: ServiceOf) -> Response:
    """Without any text of a prompt."""
    entries = [msgspec.to_builtins(each) for each in service.recorder.last_of(None)]
    for entry in entries:
        why = entry["cache"]["why"]
        entry["cache"]["why"] = {"kind": why["kind"], "at": why["at"]}
    return json_response({"requests": entries})


@router.post("/flush", summary="Forget a tenant's KV")
async def flush(body: FlushBody, admin: AdminOf, service: ServiceOf) -> Response:
    tenant = service.tenants.named(body.tenant)
    if tenant is None:
        raise ApiError(404, f"There is no tenant {body.tenant!r:.80}.", param="tenant")
    done = await service.ask(lambda: service.hw.cache.flush(b"", tenant.sharing, None))
    return json_response(msgspec.to_builtins(done))


@router.post("/weights", summary="Replace the weights in place")
async def weights(body: WeightsBody, admin: AdminOf, service: ServiceOf) -> Response:
    """Old KV is unreachable when this returns."""
    epoch = await service.ask(lambda: service.hw.replace_weights(body.model, body.mode))
    return json_response({"epoch": epoch})


@router.post("/drain", summary="Let nobody in any more; what runs goes on")
async def drain(admin: AdminOf, service: ServiceOf) -> Response:
    service.desk.is_closed = True
    return json_response({"draining": True, "unfinished": sum(service.desk.busy.values())})
