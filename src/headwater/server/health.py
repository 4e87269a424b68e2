"""Is it alive, is it ready, what does it count: for orchestrators and Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from headwater.server.answer import json_response
from headwater.server.caller import CallerOf, ServiceOf, admin_of
from headwater.server.config import is_loopback
from headwater.server.shapes.fields import require_model

router = APIRouter()


@router.get("/healthz", summary="The process answers")
async def healthz() -> Response:
    return json_response({"status": "alive"})


@router.get("/readyz", summary="Requests are let in and steps go on")
async def readyz(service: ServiceOf) -> Response:
    why = service.why_not_ready
    if why is None:
        return json_response({"status": "ready"})
    return json_response({"status": "not ready", "reason": why}, 503)


@router.get("/metrics", summary="Metrics for Prometheus")
async def metrics(request: Request, service: ServiceOf) -> Response:
    """They name all tenants: where others than this machine's users can ask, and tenants have
    keys, an admin's is needed."""
    if not service.tenants.is_open and not is_loopback(service.config.host):
        admin_of(request)
    text = await service.ask(service.recorder.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/v1/models", summary="The model that is served")
async def models(caller: CallerOf, service: ServiceOf) -> Response:
    return json_response({"object": "list", "data": [_model(service)]})


@router.get("/v1/models/{name:path}", summary="The same by name")
async def model(name: str, caller: CallerOf, service: ServiceOf) -> Response:
    require_model(name, service.model)
    return json_response(_model(service))


def _model(service: ServiceOf) -> dict[str, object]:
    return {
        "id": service.model,
        "object": "model",
        "created": service.began,
        "owned_by": "headwater",
        "max_model_len": service.hw.recipe.settings.context,
    }
