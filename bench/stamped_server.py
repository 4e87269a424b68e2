"""A server that notes when its engine delivers each piece of text. Usage: stamped_server.py PORT

The time from there to a client is what HTTP adds to the Python API, whose callers get the piece at
that moment. `GET /stamps` gives, by the seed of each request, when the engine was asked and when it
delivered every piece that carries text, in monotonic seconds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from headwater.engine.job import Job
from headwater.engine.results import Piece
from headwater.server.config import read_config
from headwater.server.serve import Server, listen, load, make_service, settle


def main() -> None:
    config = read_config(None, {"port": int(sys.argv[1]), "dtype": "float32"})
    hw = load(config)
    stamps: dict[int, tuple[float, list[float]]] = {}
    post = hw._engine.post  # noqa: SLF001 - where every request passes

    def stamped(message: Any) -> None:
        if isinstance(message, Job):
            _stamp(message, stamps)
        post(message)

    hw._engine.post = stamped  # type: ignore[method-assign]  # noqa: SLF001
    server = Server(make_service(hw, config), lambda: None)
    app: Any = server.config.app
    app.router.routes.insert(0, _route(stamps))
    settle()
    server.run(sockets=[listen(config)])


def _stamp(job: Job, stamps: dict[int, tuple[float, list[float]]]) -> None:
    deliver, times = job.deliver, list[float]()
    stamps[job.params.seed] = time.monotonic(), times

    def stamped(delivered: Any) -> None:
        if isinstance(delivered, Piece) and delivered.text:
            times.append(time.monotonic())
        deliver(delivered)

    job.deliver = stamped


def _route(stamps: dict[int, tuple[float, list[float]]]) -> Any:
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def show(request: Request) -> JSONResponse:
        return JSONResponse({str(seed): each for seed, each in stamps.items()})

    return Route("/stamps", show)


if __name__ == "__main__":
    main()
