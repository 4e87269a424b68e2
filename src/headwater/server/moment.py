"""The numbers of a server at the time of a scrape."""

from __future__ import annotations

import time
from importlib.metadata import version

from headwater.engine.stats import Pages
from headwater.errors import EngineStopped
from headwater.observe.metrics import Moment
from headwater.server.service import Service


def moment_of(service: Service) -> Moment | None:
    """Waits for the end of the present step; None when it may not come.

    A scrape has to end while a step does not: that is when somebody looks.
    """
    hw = service.hw
    since = hw.progress.since
    if since is not None and time.monotonic() - since > service.config.stall:
        return None
    try:
        stats = hw.stats()
    except EngineStopped:
        return None
    return Moment(
        pages=_by_state(stats.pages),
        page_bytes=hw.page_bytes,
        pinned=stats.pages.pinned,
        evicted=stats.pages.evicted,
        sequences={
            "running": stats.running,
            "loading": stats.loading,
            "waiting": stats.waiting,
        },
        leases=stats.leases,
        promises=stats.promises,
        holds=stats.holds,
        steps=hw.progress.steps,
        shares=stats.shares,
        ready=service.is_ready,
        info={
            "version": version("headwater"),
            "model": service.model,
            "epoch": stats.epoch[:16],
        },
        unfinished=dict(service.desk.busy),
        unanswered=service.desk.waiting,
        refused=dict(service.desk.refused),
    )


def _by_state(pages: Pages) -> dict[str, int]:
    return {
        "free": pages.free,
        "cached": pages.cached,
        "private": pages.private,
        "in_io": pages.in_io,
    }
